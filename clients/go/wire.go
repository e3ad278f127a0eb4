package brandedphonenumbers

import (
	"encoding/json"
	"time"
)

// marshal encodes the members of a model, with times as the service writes them: in UTC, with milliseconds.
func marshal(members map[string]interface{}) ([]byte, error) {
	for name, member := range members {
		if moment, ok := member.(time.Time); ok {
			members[name] = moment.UTC().Format("2006-01-02T15:04:05.000Z")
		}
	}
	return json.Marshal(members)
}
