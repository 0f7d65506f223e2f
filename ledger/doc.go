package ledger

import (
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"
)
