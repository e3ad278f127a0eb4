package example.brandedphonenumbers.client;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Iterator;
import java.util.Locale;
import java.util.Map;

/** Checks a response by the part of JSON Schema that says what a page is. */
final class PageSchema {
  private PageSchema() {}

  /** Returns whether a value has the type, the members and the items that a schema requires. It may have more members. */
  static boolean conforms(JsonNode value, JsonNode schema) {
    if (!hasText(schema.get("type"), value.getNodeType().name().toLowerCase(Locale.ROOT))) return false;
    if (value.isTextual()) return !schema.has("pattern") || value.textValue().matches(schema.get("pattern").textValue());
    if (value.isArray()) {
      for (JsonNode item : value) {
        if (!conforms(item, schema.get("items"))) return false;
      }
    }
    if (value.isObject()) {
      for (JsonNode name : schema.get("required")) {
        if (!value.has(name.textValue())) return false;
      }
      for (Iterator<Map.Entry<String, JsonNode>> members = schema.get("properties").fields(); members.hasNext(); ) {
        Map.Entry<String, JsonNode> member = members.next();
        if (value.has(member.getKey()) && !conforms(value.get(member.getKey()), member.getValue())) return false;
      }
    }
    return true;
  }

  private static boolean hasText(JsonNode texts, String text) {
    for (JsonNode one : texts) {
      if (one.textValue().equals(text)) return true;
    }
    return false;
  }
}
