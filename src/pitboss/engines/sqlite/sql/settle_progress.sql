UPDATE tasks
SET progress = told.column2, note = told.column3
FROM (
    VALUES (?, ?, ?)
) AS told
WHERE tasks.rowid = told.column1
