// go run . : reads a question a line and answers it, in JSON (spec/09-conformance.md).
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
)

type row map[string]any

func answer(asked row) (found row) {
	defer func() { // a panic is an error like any other
		if panicked := recover(); panicked != nil {
			found = row{"error": fmt.Sprint(panicked)}
		}
	}()
	if asked["op"] == "hello" {
		return row{"name": "example (Go)", "version": "1", "ops": []string{"decode"}}
	}
	data, _ := hex.DecodeString(asked["data"].(string))
	records, err := decode(data)
	if err != nil {
		return row{"error": err.Error()}
	} else if records == nil {
		return row{"plain": true}
	}
	rows := []row{}
	for _, one := range records {
		rows = append(rows, row{"partition_key": one.partitionKey, "data": hex.EncodeToString(one.data)})
		if one.explicitHashKey != nil {
			rows[len(rows)-1]["explicit_hash_key"] = *one.explicitHashKey
		}
	}
	return row{"user_records": rows}
}

func main() {
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for asked := (row{}); questions.Decode(&asked) == nil; asked = nil {
		found := answer(asked)
		found["id"] = asked["id"]
		answers.Encode(found)
	}
}
