UPDATE pitboss_tasks
SET progress = told.column2, note = told.column3
FROM (
    VALUES (?, ?, ?)
) AS told
WHERE pitboss_tasks.rowid = told.column1
