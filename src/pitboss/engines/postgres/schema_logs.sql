-- What operators did. Ids grow with time.
CREATE TABLE {schema}.audit (
    id text COLLATE "C" PRIMARY KEY,
    at bigint NOT NULL,
    who text NOT NULL,
    act text NOT NULL,
    target text NOT NULL,
    details text NOT NULL,
    source text NOT NULL
);

-- What happened. Ids grow with time.
CREATE TABLE {schema}.happenings (
    id text COLLATE "C" PRIMARY KEY,
    at bigint NOT NULL,
    kind text NOT NULL,
    severity text NOT NULL,
    subject text NOT NULL,
    text text NOT NULL,
    host text NOT NULL,
    manager bigint NOT NULL,
    details text NOT NULL,
    count bigint NOT NULL
);
