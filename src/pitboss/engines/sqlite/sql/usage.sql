-- name: refusing_set
UPDATE pitboss_leader SET refusing = ?

-- name: usage_pages
SELECT page_count, freelist_count, auto_vacuum FROM pragma_page_count, pragma_freelist_count, pragma_auto_vacuum

-- name: usage_get
SELECT refusing, page_size, page_count, freelist_count
FROM pitboss_leader, pragma_page_size, pragma_page_count, pragma_freelist_count
