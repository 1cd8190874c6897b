-- name: lease_get
SELECT pool, member, until, leased FROM pitboss_leases WHERE name = ?

-- name: lease_put
INSERT OR REPLACE INTO pitboss_leases (name, pool, member, until, leased) VALUES (?, ?, ?, ?, ?)

-- name: lease_extend
UPDATE pitboss_leases SET until = ?2 WHERE name = ?1

-- name: lease_end
DELETE FROM pitboss_leases WHERE name = ?

-- name: lease_list_over
SELECT name, pool, member FROM pitboss_leases WHERE until <= ? ORDER BY until LIMIT ?
