/** A client of the Branded Phone Numbers API. */
module example.brandedphonenumbers.client {
  requires transitive com.fasterxml.jackson.databind;
  requires com.fasterxml.jackson.datatype.jsr310;
  requires transitive java.net.http;
  // @Nullable, which programs don't need when they run.
  requires static jsr305;

  exports example.brandedphonenumbers.client;
  exports example.brandedphonenumbers.client.model;
  opens example.brandedphonenumbers.client.model to com.fasterxml.jackson.databind;
}
