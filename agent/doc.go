package agent

import (
	_ "github.com/modelcontextprotocol/go-sdk/mcp"
	_ "github.com/BurntSushi/toml"
	_ "go.yaml.in/yaml/v3"
)
