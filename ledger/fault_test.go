package ledger

func taskFaults([]string) error { return nil }
