-- The schema, version 1. Run with `search_path` set to the schema of the store.
--
-- One function commits a whole batch: one round trip, one transaction. Rows are locked in one
-- order everywhere: the session, accounts by name, records as they come. Numbers of events come
-- from a sequence; a reader of all sessions stops before the first number that may still be
-- written (see `settled_until`), so that it misses none.

CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL);
CREATE TABLE secrets (key text PRIMARY KEY, value bytea NOT NULL);

CREATE TABLE sessions (
    sid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE,
    state text NOT NULL, rollback text NOT NULL, stopped int NOT NULL, owner text NOT NULL,
    fence bigint NOT NULL, n bigint NOT NULL, head bytea NOT NULL, created bigint NOT NULL,
    updated bigint NOT NULL, parent text NOT NULL, agent text NOT NULL, body text NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX sessions_owner ON sessions (owner) WHERE owner != '';
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent != '';
CREATE INDEX sessions_agent ON sessions (agent, sid);
CREATE INDEX sessions_state ON sessions (state, sid);
CREATE INDEX sessions_rollback ON sessions (rollback, sid) WHERE rollback != 'none';

CREATE SEQUENCE events_seq AS bigint;
CREATE TABLE events (
    seq bigint PRIMARY KEY, sid bigint NOT NULL, n bigint NOT NULL, kind text NOT NULL,
    call text NOT NULL, attempt int NOT NULL, at bigint NOT NULL, ref bytea NOT NULL,
    prev bytea NOT NULL, hash bytea NOT NULL, view text NOT NULL,
    salt bytea, data bytea, place text
);
CREATE UNIQUE INDEX events_chain ON events (sid, seq);
CREATE UNIQUE INDEX events_single ON events (call, kind, attempt)
    WHERE kind IN ('intent', 'outcome');
CREATE INDEX events_call ON events (call) WHERE call != '' AND kind NOT IN ('intent', 'outcome');

CREATE TABLE records (
    rid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, id text NOT NULL,
    state text NOT NULL, session text NOT NULL, label text NOT NULL, created bigint NOT NULL,
    updated bigint NOT NULL, body text NOT NULL, UNIQUE (kind, id)
);
CREATE INDEX records_state ON records (kind, state, rid);
CREATE INDEX records_label ON records (kind, label, rid) WHERE label != '';
CREATE INDEX records_session ON records (session, rid) WHERE session != '';

CREATE TABLE accounts (
    account text PRIMARY KEY, unit text NOT NULL, spent bigint NOT NULL, held bigint NOT NULL,
    recent bigint NOT NULL, span bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE holds (
    id text PRIMARY KEY, account text NOT NULL, amount bigint NOT NULL, unit text NOT NULL,
    settle text NOT NULL, call text NOT NULL, session text NOT NULL, span bigint NOT NULL,
    at bigint NOT NULL
);
-- Settled holds that an account's row does not count yet, because others held it at the moment: a
-- settle never waits for the row. Each releases at least what it spends, so the row never says that
-- there is more room than there is; whoever finds no room adds these up first. `balances` is exact.
CREATE TABLE unbooked (
    account text NOT NULL, released bigint NOT NULL, spent bigint NOT NULL
);
CREATE INDEX unbooked_account ON unbooked (account);
CREATE VIEW balances AS SELECT account, unit,
    (a.spent + coalesce((SELECT sum(u.spent) FROM unbooked u WHERE u.account = a.account), 0))::bigint
        AS spent,
    (a.held - coalesce((SELECT sum(u.released) FROM unbooked u WHERE u.account = a.account), 0))::bigint
        AS held,
    recent, span FROM accounts a;
CREATE TABLE bookings (
    account text NOT NULL, at bigint NOT NULL, amount bigint NOT NULL, PRIMARY KEY (account, at)
);
CREATE TABLE owners (
    id text PRIMARY KEY, host text NOT NULL, boot text NOT NULL, pid int NOT NULL,
    started text NOT NULL, beat bigint NOT NULL
);
CREATE TABLE costs (
    seq bigint PRIMARY KEY, at bigint NOT NULL, sid bigint NOT NULL, kind text NOT NULL,
    name text NOT NULL, agent text NOT NULL, task text NOT NULL, "user" text NOT NULL,
    tenant text NOT NULL, role text NOT NULL, state text NOT NULL, cost bigint,
    tokens bigint NOT NULL, input bigint NOT NULL, output bigint NOT NULL,
    cache_read bigint NOT NULL, cache_write bigint NOT NULL, reasoning bigint NOT NULL,
    audio bigint NOT NULL, saved bigint NOT NULL, source text NOT NULL
);
CREATE INDEX costs_session ON costs (sid, seq);
CREATE INDEX costs_at ON costs (at);

-- A number up to which every event is either visible or will never be. Numbers are taken under a
-- lock that names the number before; the order of the two reads matters.
CREATE FUNCTION settled_until() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    newest bigint;
    pending bigint;
BEGIN
    SELECT last_value INTO newest FROM events_seq;
    SELECT min(((classid::bigint & 16777215) << 32) | objid::bigint) INTO pending FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (classid::bigint >> 24) = 99;
    RETURN least(newest, coalesce(pending, newest));
END $$;

CREATE FUNCTION book(account_ text, at_ bigint, amount_ bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO bookings AS b VALUES (account_, at_, amount_)
    ON CONFLICT (account, at) DO UPDATE SET amount = b.amount + excluded.amount;
$$;

-- Whoever calls it holds the account's row.
CREATE FUNCTION add_unbooked(account_ text) RETURNS void LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM unbooked WHERE account = account_ RETURNING released, spent),
        total AS (SELECT sum(released) AS released, sum(spent) AS spent FROM gone)
    UPDATE accounts a SET held = a.held - total.released, spent = a.spent + total.spent
        FROM total WHERE a.account = account_ AND total.released IS NOT NULL;
$$;

CREATE FUNCTION settle_hold(id_ text, actual bigint, streak text, now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    h holds%ROWTYPE;
BEGIN
    DELETE FROM holds WHERE id = id_ RETURNING * INTO h;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF streak = 'book' THEN
        UPDATE accounts SET held = held - h.amount, spent = spent + actual,
            recent = recent + actual WHERE account = h.account;
        PERFORM book(h.account, now, actual);
    ELSIF streak = 'clear' THEN
        UPDATE accounts SET held = held - h.amount WHERE account = h.account;
        IF NOT EXISTS (SELECT 1 FROM bookings b WHERE b.account = h.account AND b.at > h.at) THEN
            UPDATE accounts SET recent = 0 WHERE account = h.account AND recent != 0;
            IF FOUND THEN
                DELETE FROM bookings b WHERE b.account = h.account;
            END IF;
        END IF;
    ELSIF h.span = 0 AND h.settle != 'streak' AND actual <= h.amount THEN
        UPDATE accounts SET held = held - h.amount, spent = spent + actual WHERE account =
            (SELECT a.account FROM accounts a WHERE a.account = h.account FOR UPDATE SKIP LOCKED);
        IF NOT FOUND THEN
            INSERT INTO unbooked VALUES (h.account, h.amount, actual);
        END IF;
    ELSE
        UPDATE accounts SET held = held - h.amount, spent = spent + actual,
            recent = recent + CASE WHEN h.span != 0 THEN actual ELSE 0 END
            WHERE account = h.account;
        IF h.span != 0 AND actual != 0 THEN
            PERFORM book(h.account, h.at, actual);
        END IF;
    END IF;
END $$;

CREATE FUNCTION take_hold(
    index_ int, id_ text, account_ text, amount_ bigint, unit_ text, limit_ bigint, span_ bigint,
    settle_ text, call_ text, session_ text, now bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    a accounts%ROWTYPE;
    gone bigint;
    counted bigint;
BEGIN
    -- Whoever has no window needs one statement.
    IF span_ = 0 AND settle_ != 'streak' THEN
        UPDATE accounts SET held = held + amount_ WHERE account = account_ AND unit = unit_
            AND spent + held + amount_ <= limit_;
        IF FOUND THEN
            INSERT INTO holds VALUES
                (id_, account_, amount_, unit_, settle_, call_, session_, 0, now);
            -- Now and then, so that they do not pile up.
            IF random() < 0.05 THEN
                PERFORM add_unbooked(account_);
            END IF;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO a FROM accounts WHERE account = account_ FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO accounts VALUES (account_, unit_, 0, 0, 0, span_) ON CONFLICT DO NOTHING;
        SELECT * INTO a FROM accounts WHERE account = account_ FOR UPDATE;
    END IF;
    PERFORM add_unbooked(account_);
    SELECT * INTO a FROM accounts WHERE account = account_;
    IF a.unit != unit_ THEN
        RAISE EXCEPTION 'unit' USING ERRCODE = 'CRU01',
            DETAIL = json_build_object('index', index_, 'unit', a.unit)::text;
    END IF;
    IF settle_ = 'streak' THEN
        counted := a.recent;
    ELSIF span_ != 0 THEN
        a.span := greatest(a.span, span_);
        WITH past AS (
            DELETE FROM bookings b WHERE b.account = account_ AND b.at <= now - a.span
            RETURNING b.amount
        ) SELECT coalesce(sum(amount), 0) INTO gone FROM past;
        a.recent := a.recent - gone;
        IF a.span <= span_ THEN
            counted := a.recent;
        ELSE
            SELECT coalesce(sum(b.amount), 0) INTO counted FROM bookings b
                WHERE b.account = account_ AND b.at > now - span_;
        END IF;
    ELSE
        counted := a.spent;
    END IF;
    IF counted + a.held + amount_ > limit_ AND NOT (
        settle_ = 'streak' AND a.held = 0 AND NOT EXISTS (
            SELECT 1 FROM bookings b WHERE b.account = account_ AND b.at > now - span_)
    ) THEN
        RAISE EXCEPTION 'no room' USING ERRCODE = 'CRH01', DETAIL = json_build_object(
            'index', index_, 'account', account_, 'spent', counted, 'held', a.held)::text;
    END IF;
    INSERT INTO holds VALUES
        (id_, account_, amount_, unit_, settle_, call_, session_, span_, now);
    UPDATE accounts SET held = held + amount_, recent = a.recent, span = a.span
        WHERE account = account_;
END $$;

CREATE FUNCTION put_record(index_ int, put jsonb, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    present text;
    wanted jsonb := put -> 'if_state';
BEGIN
    LOOP
        SELECT state INTO present FROM records
            WHERE kind = put ->> 'kind' AND id = put ->> 'id' FOR UPDATE;
        IF jsonb_typeof(wanted) = 'array' AND NOT wanted ? coalesce(present, '') THEN
            RAISE EXCEPTION 'state' USING ERRCODE = 'CRP01',
                DETAIL = json_build_object('index', index_, 'state', present)::text;
        END IF;
        IF present IS NOT NULL THEN
            UPDATE records SET state = put ->> 'state', session = put ->> 'session',
                label = put ->> 'label', updated = now, body = put ->> 'body'
                WHERE kind = put ->> 'kind' AND id = put ->> 'id';
            RETURN;
        END IF;
        INSERT INTO records (kind, id, state, session, label, created, updated, body) VALUES
            (put ->> 'kind', put ->> 'id', put ->> 'state', put ->> 'session', put ->> 'label',
             now, now, put ->> 'body') ON CONFLICT (kind, id) DO NOTHING;
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION commit_batch(
    session_ text, now bigint, fence_ bigint, admit boolean, change jsonb,
    kinds text[], calls text[], attempts int[], ats bigint[], views text[],
    refs bytea[], salts bytea[], datas bytea[], places text[],
    settled text[], actuals bigint[], streaks text[],
    hold_ids text[], hold_accounts text[], amounts bigint[], units text[], limits bigint[],
    spans bigint[], settles text[], hold_calls text[], hold_sessions text[],
    puts jsonb, bill jsonb,
    OUT seq_ bigint, OUT n_ bigint, OUT rollback_ text
) LANGUAGE plpgsql AS $$
DECLARE
    s sessions%ROWTYPE;
    creates boolean := coalesce((change ->> 'create')::boolean, false);
    wanted jsonb := change -> 'if_state';
    before bytea;
    low bigint;
    last bigint;
    item jsonb;
    place_ int;
    grown boolean := cardinality(kinds) > 0;
BEGIN
    SELECT * INTO s FROM sessions WHERE id = session_ FOR UPDATE;
    IF NOT FOUND OR creates THEN
        IF FOUND THEN
            RAISE EXCEPTION 'exists' USING ERRCODE = 'CRS01';
        END IF;
        IF NOT creates OR (jsonb_typeof(wanted) = 'array' AND NOT wanted ? '') THEN
            RAISE EXCEPTION 'unknown' USING ERRCODE = 'CRS02';
        END IF;
        INSERT INTO sessions (id, state, rollback, stopped, owner, fence, n, head, created,
            updated, parent, agent, body) VALUES (session_, change ->> 'state',
            change ->> 'rollback', (change ->> 'stopped')::int, change ->> 'owner',
            CASE WHEN change ->> 'owner' = '' THEN 0 ELSE 1 END, 0,
            decode(repeat('00', 32), 'hex'), now, now, change ->> 'parent', change ->> 'agent',
            change ->> 'body') RETURNING * INTO s;
    END IF;
    IF fence_ < s.fence THEN
        RAISE EXCEPTION 'fence' USING ERRCODE = 'CRF01', DETAIL = s.fence::text;
    END IF;
    IF admit AND (s.state != 'ACTIVE' OR s.stopped != 0 OR s.rollback != 'none') THEN
        RAISE EXCEPTION 'closed' USING ERRCODE = 'CRC01', DETAIL = json_build_object(
            'state', s.state, 'rollback', s.rollback, 'stopped', s.stopped)::text;
    END IF;
    IF NOT creates AND jsonb_typeof(wanted) = 'array' AND NOT wanted ? s.state THEN
        RAISE EXCEPTION 'state' USING ERRCODE = 'CRS03', DETAIL = s.state;
    END IF;
    SELECT last_value INTO low FROM events_seq;
    last := low;
    IF grown THEN
        PERFORM pg_advisory_xact_lock_shared((99::bigint << 56) | low);
    END IF;
    FOR i IN 1 .. cardinality(kinds) LOOP
        last := nextval('events_seq');
        s.n := s.n + 1;
        before := s.head;
        s.head := sha256(before || convert_to(concat_ws(' ', last, s.n, attempts[i], ats[i],
            length(refs[i])) || ' ', 'UTF8') || refs[i] || convert_to(concat_ws(' ',
            length(session_), length(kinds[i]), length(calls[i])) || E'\n' || session_
            || kinds[i] || calls[i] || views[i], 'UTF8'));
        INSERT INTO events VALUES (last, s.sid, s.n, kinds[i], calls[i], attempts[i], ats[i],
            refs[i], before, s.head, views[i], salts[i], datas[i], places[i]);
    END LOOP;
    IF cardinality(settled) + cardinality(hold_ids) > 1 THEN
        PERFORM 1 FROM accounts WHERE account IN (
            SELECT h.account FROM holds h WHERE h.id = ANY (settled)
            UNION ALL SELECT unnest(hold_accounts)) ORDER BY account FOR UPDATE;
    END IF;
    FOR i IN 1 .. cardinality(settled) LOOP
        PERFORM settle_hold(settled[i], actuals[i], streaks[i], now);
    END LOOP;
    FOR i IN 1 .. cardinality(hold_ids) LOOP
        PERFORM take_hold(i - 1, hold_ids[i], hold_accounts[i], amounts[i], units[i], limits[i],
            spans[i], settles[i], hold_calls[i], hold_sessions[i], now);
    END LOOP;
    IF puts IS NOT NULL THEN
        place_ := 0;
        FOR item IN SELECT * FROM jsonb_array_elements(puts) LOOP
            PERFORM put_record(place_, item, now);
            place_ := place_ + 1;
        END LOOP;
    END IF;
    IF bill IS NOT NULL THEN
        INSERT INTO costs SELECT (jsonb_populate_record(NULL::costs,
            bill || jsonb_build_object('seq', last, 'at', now, 'sid', s.sid))).*;
    END IF;
    IF change IS NOT NULL AND NOT creates THEN
        s.state := coalesce(change ->> 'state', s.state);
        s.rollback := coalesce(change ->> 'rollback', s.rollback);
        IF change ->> 'stopped' IS NOT NULL THEN
            s.stopped := (change ->> 'stopped')::int;
        ELSIF change ->> 'paused' IS NOT NULL AND s.stopped != 1 THEN
            s.stopped := CASE WHEN (change ->> 'paused')::boolean THEN 2 ELSE 0 END;
        END IF;
        IF change ->> 'owner' = '' THEN
            s.owner := '';
        END IF;
    END IF;
    IF grown OR change IS NOT NULL THEN
        UPDATE sessions SET n = s.n, head = s.head, state = s.state, rollback = s.rollback,
            stopped = s.stopped, owner = s.owner, updated = greatest(updated, now)
            WHERE sid = s.sid;
    END IF;
    -- People and other processes wait for these. Not for every event: a notification makes
    -- commits wait for each other.
    IF puts IS NOT NULL OR change IS NOT NULL THEN
        PERFORM pg_notify(current_schema() || '_changed', '');
    END IF;
    seq_ := last;
    n_ := s.n + 1;
    rollback_ := s.rollback;
END $$;
