package ledger

var childTasks = map[string]func(args []string) error{}
