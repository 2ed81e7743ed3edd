from pathlib import Path
def migrate(dsn):
    import psycopg2
    from spillway.embedded.config import REPO
    c = psycopg2.connect(dsn)
    with c, c.cursor() as k:
        k.execute("create table if not exists public.spillway_migration (version integer primary key, name text not null, sha256 text, applied_at timestamptz default now())")
        for f in sorted((REPO/"sql"/"migrations").glob("*.sql")):
            v = int(f.name.split("_")[0]); k.execute("select 1 from public.spillway_migration where version=%s", (v,))
            if not k.fetchone():
                k.execute(f.read_text()); k.execute("insert into public.spillway_migration(version,name) values (%s,%s)", (v, f.name))
    c.close()
