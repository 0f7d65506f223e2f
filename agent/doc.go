package agent

import (
	_ "github.com/BurntSushi/toml"
	_ "github.com/modelcontextprotocol/go-sdk/mcp"
	_ "go.yaml.in/yaml/v3"
)
