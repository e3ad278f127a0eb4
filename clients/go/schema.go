package brandedphonenumbers

import (
	"encoding/json"
	"regexp"
	"slices"
)

// schema is the part of JSON Schema that says what a page is.
type schema struct {
	Type       []string
	Pattern    *regexp.Regexp
	Required   []string
	Properties map[string]schema
	Items      *schema
}

// parseSchema panics if text is not a schema: it is generated.
func parseSchema(text string) (parsed schema) {
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		panic(err)
	}
	return parsed
}

// conforms returns whether decoded JSON has the type, the members and the items that the schema requires. It may have more
// members.
func (s schema) conforms(value any) bool {
	switch value := value.(type) {
	case nil:
		return slices.Contains(s.Type, "null")
	case string:
		return slices.Contains(s.Type, "string") && (s.Pattern == nil || s.Pattern.MatchString(value))
	case []any:
		return slices.Contains(s.Type, "array") && !slices.ContainsFunc(value, func(item any) bool { return !s.Items.conforms(item) })
	case map[string]any:
		for _, name := range s.Required {
			if _, ok := value[name]; !ok {
				return false
			}
		}
		for name, member := range s.Properties {
			if given, ok := value[name]; ok && !member.conforms(given) {
				return false
			}
		}
		return slices.Contains(s.Type, "object")
	}
	return false
}
