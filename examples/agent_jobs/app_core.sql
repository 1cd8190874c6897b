-- Times are seconds since 1970. The store of Pitboss may be in the same file: its tables begin with pitboss_.
CREATE TABLE IF NOT EXISTS users (id TEXT PRIMARY KEY, email TEXT NOT NULL UNIQUE, created_at REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, user_id TEXT NOT NULL, expires_at REAL NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS sessions_by_end ON sessions (expires_at);
CREATE TABLE IF NOT EXISTS conversations (
    id TEXT PRIMARY KEY, user_id TEXT NOT NULL, title TEXT NOT NULL, updated_at REAL NOT NULL, archived_at REAL
) STRICT;
CREATE INDEX IF NOT EXISTS conversations_by_change ON conversations (updated_at);
CREATE TABLE IF NOT EXISTS workspaces (user_id TEXT PRIMARY KEY, created_at REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS folders (user_id TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (user_id, name)) STRICT;
CREATE TABLE IF NOT EXISTS search_index (
    conversation_id TEXT PRIMARY KEY, title TEXT NOT NULL, updated_at REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS messages (
    number INTEGER PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, user_id TEXT NOT NULL, text TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS activity (event_id TEXT PRIMARY KEY, name TEXT NOT NULL, data TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS notices (
    event_id TEXT PRIMARY KEY, user_id TEXT NOT NULL, channel TEXT NOT NULL, text TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS incidents (
    task_id TEXT PRIMARY KEY, handler TEXT NOT NULL, queue TEXT NOT NULL, error TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS runs (
    task TEXT NOT NULL, scheduled_for TEXT NOT NULL, details TEXT NOT NULL, times INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (task, scheduled_for)
) STRICT;
