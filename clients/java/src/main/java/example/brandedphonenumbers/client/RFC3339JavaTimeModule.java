package example.brandedphonenumbers.client;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.SerializerProvider;
import com.fasterxml.jackson.databind.module.SimpleModule;
import com.fasterxml.jackson.databind.ser.std.StdSerializer;
import java.io.IOException;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;

/** Writes times as the service does: in UTC, with milliseconds. */
public class RFC3339JavaTimeModule extends SimpleModule {
  private static final long serialVersionUID = 1L;
  private static final DateTimeFormatter FORMAT = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSX");

  /** Creates the module. */
  public RFC3339JavaTimeModule() {
    super("RFC3339JavaTimeModule");
    addSerializer(new OffsetDateTimeSerializer());
  }

  private static final class OffsetDateTimeSerializer extends StdSerializer<OffsetDateTime> {
    private static final long serialVersionUID = 1L;

    OffsetDateTimeSerializer() {
      super(OffsetDateTime.class);
    }

    @Override
    public void serialize(OffsetDateTime time, JsonGenerator json, SerializerProvider provider) throws IOException {
      json.writeString(FORMAT.format(time.withOffsetSameInstant(ZoneOffset.UTC)));
    }
  }
}
