package example.brandedphonenumbers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeout;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import example.brandedphonenumbers.client.ApiClient;
import example.brandedphonenumbers.client.ApiException;
import example.brandedphonenumbers.client.BrandedPhoneNumbersApi;
import example.brandedphonenumbers.client.BrandedPhoneNumbersApi.APIListBrandedPhoneNumbersRequest;
import example.brandedphonenumbers.client.Pages;
import example.brandedphonenumbers.client.model.BrandedPhoneNumber;
import example.brandedphonenumbers.client.model.BrandedPhoneNumberPage;
import example.brandedphonenumbers.client.model.DetailedStatus;
import example.brandedphonenumbers.client.model.Feature;
import example.brandedphonenumbers.client.model.Status;
import example.brandedphonenumbers.client.model.StatusFilter;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ProxySelector;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import javax.net.ssl.SSLHandshakeException;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Tests the client against a running service. */
class ClientTest {
  static final ObjectMapper JSON = new ObjectMapper();
  static final String SERVICE_URL = System.getenv("SERVICE_URL");
  static final String LIMITED_URL = System.getenv("LIMITED_URL");
  static final String FAILING_URL = System.getenv("FAILING_URL");
  final BrandedPhoneNumbersApi api = client(SERVICE_URL);

  static BrandedPhoneNumbersApi client(String url) {
    var client = new ApiClient();
    client.updateBaseUri(url);
    return new BrandedPhoneNumbersApi(client);
  }

  /** Returns a client that does not retry. */
  static BrandedPhoneNumbersApi once(String url) {
    return client(url).withRetryFor(Duration.ZERO);
  }

  static APIListBrandedPhoneNumbersRequest.Builder request() {
    return APIListBrandedPhoneNumbersRequest.newBuilder();
  }

  @TestFactory
  Stream<DynamicTest> listsTheRightNumbersFor() throws Exception {
    return StreamSupport.stream(JSON.readTree(new File(System.getenv("SHAPES"))).spliterator(), false)
        .map(shape -> DynamicTest.dynamicTest(shape.get("title").asText(), () -> {
          var numbers = walk(request(shape.get("arguments")));
          assertEquals(shape.get("count").asInt(), numbers.size());
          var first = firstPage(shape.get("query").asText());
          assertEquals(first, numbers.subList(0, Math.min(100, numbers.size())));
        }));
  }

  static APIListBrandedPhoneNumbersRequest.Builder request(JsonNode given) {
    var request = request();
    if (given.has("phoneNumber")) request.phoneNumber(given.get("phoneNumber").asText());
    if (given.has("businessProfileId")) request.businessProfileId(UUID.fromString(given.get("businessProfileId").asText()));
    return request
        .reportingGroup(values(given, "reportingGroup"))
        .internalName(values(given, "internalName"))
        .carrier(values(given, "carrier"))
        .feature(values(given, "feature"))
        .status(values(given, "status"))
        .detailedStatus(values(given, "detailedStatus"));
  }

  static List<String> values(JsonNode given, String name) {
    return StreamSupport.stream(given.path(name).spliterator(), false).map(JsonNode::asText).collect(Collectors.toList());
  }

  /** Returns the numbers of all pages, with the largest page size. */
  List<String> walk(APIListBrandedPhoneNumbersRequest.Builder request) throws ApiException {
    var numbers = new ArrayList<String>();
    BrandedPhoneNumberPage page;
    do {
      page = api.listBrandedPhoneNumbers(request.size(100).build());
      page.getItems().forEach(number -> numbers.add(number.getPhoneNumber()));
      request.nextCursor(page.getNextCursor());
    } while (page.getNextCursor() != null);
    return numbers;
  }

  /** Sends a request without the client. */
  static String send(String uri) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(uri)).build();
    return HttpClient.newHttpClient().send(request, BodyHandlers.ofString()).body();
  }

  static List<String> firstPage(String query) throws Exception {
    var page = JSON.readTree(send(SERVICE_URL + "/v1/brandedPhoneNumbers?size=100&" + query));
    return StreamSupport.stream(page.get("items").spliterator(), false)
        .map(item -> item.get("phoneNumber").asText()).collect(Collectors.toList());
  }

  @Test
  void sendsAnEmptyListAsNoFilter() throws Exception {
    assertEquals(240, walk(request().carrier(List.of()).status(List.of()).feature(List.of())).size());
  }

  @Test
  void readsTimesAndNullMembers() throws Exception {
    var page = api.listBrandedPhoneNumbers(request().phoneNumber("+14155550003").build());
    assertNull(page.getNextCursor());
    var number = page.getItems().get(0);
    var created = OffsetDateTime.parse("2026-02-03T16:49:02.748Z");
    assertTrue(created.isEqual(number.getCreatedAt()));
    assertTrue(created.isEqual(number.getCarrierStatuses().get(0).getCreatedAt()));
    assertNull(number.getInternalName());
    assertEquals("Café & Co", number.getBrandingNameShort());
    assertNull(number.getBrandingNameLong());
  }

  @Test
  void hasTheKnownValuesAsTheyAreInAPage() {
    var number = api.listBrandedPhoneNumbers(request().phoneNumber("+14155550001").build()).getItems().get(0);
    var entry = number.getCarrierStatuses().get(0);
    assertTrue(number.getStatus().equals(Status.REJECTED) && StatusFilter.REJECTED.equals(number.getStatus()));
    assertTrue(entry.getFeature().equals(Feature.BRANDED_CALLER_ID));
    assertTrue(entry.getDetailedStatus().equals(DetailedStatus.REJECTED_OPT_IN));
  }

  @Test
  void writesAPageAsTheServiceSendsIt() throws Exception {
    var sent = send(SERVICE_URL + "/v1/brandedPhoneNumbers?size=100");
    assertTrue(sent.contains("\"2026-02-03T16:49:02.800Z\"") && sent.contains("\"2026-02-03T16:49:02.000Z\""));
    var page = api.listBrandedPhoneNumbers(request().size(100).build());
    var number = page.getItems().get(0);
    number.setCreatedAt(number.getCreatedAt().withOffsetSameInstant(ZoneOffset.ofHours(1)));
    var mapper = new ApiClient().getObjectMapper();
    assertEquals(JSON.readTree(sent), JSON.readTree(mapper.writeValueAsString(page)));
  }

  @Test
  void asksForCompressedResponsesAndNamesItselfAfterTheProgram() throws Exception {
    var url = failingUrl("ok");
    assertEquals(100, client(url).listBrandedPhoneNumbers(request().size(100).build()).getItems().size());
    client(url).withUserAgent("acme-sync/2.0").listBrandedPhoneNumbers(request().build());
    var requests = requests(url);
    assertTrue(requests.get(0).get("bytes").asInt() < 10_000, requests.toString());
    var own = requests.get(0).get("headers").get("user-agent").asText();
    assertTrue(own.matches("branded-phone-numbers-client/\\d+\\.\\d+\\.\\d+ \\(Java\\)"), own);
    assertEquals("acme-sync/2.0 " + own, requests.get(1).get("headers").get("user-agent").asText());
  }

  @Test
  void usesTheProxyOfItsHttpClientOrTheSystem() {
    var proxy = URI.create(FAILING_URL);
    var builder = HttpClient.newBuilder().proxy(ProxySelector.of(new InetSocketAddress(proxy.getHost(), proxy.getPort())));
    var configured = new ApiClient().setHttpClientBuilder(builder);
    configured.updateBaseUri("http://numbers.invalid/java/ok");
    var api = new BrandedPhoneNumbersApi(configured);
    assertEquals(1, api.listBrandedPhoneNumbers(request().size(1).build()).getItems().size());
    System.setProperty("http.proxyHost", proxy.getHost());
    System.setProperty("http.proxyPort", String.valueOf(proxy.getPort()));
    var byProperties = client("http://numbers.invalid/java/ok");
    assertEquals(1, byProperties.listBrandedPhoneNumbers(request().size(1).build()).getItems().size());
  }

  @Test
  void showsEachAttemptToTheResponseInterceptor() {
    var statuses = new ArrayList<Integer>();
    var client = new ApiClient().setResponseInterceptor(response -> statuses.add(response.statusCode()));
    client.updateBaseUri(failingUrl("503"));
    new BrandedPhoneNumbersApi(client).listBrandedPhoneNumbers(request().build());
    assertEquals(List.of(503, 200), statuses);
  }

  @Test
  void throwsAnErrorWithTheProblemIfTheRequestIsRejected() throws Exception {
    var error = assertThrows(ApiException.class,
        () -> api.listBrandedPhoneNumbers(request().nextCursor("damaged").build()));
    assertEquals(400, error.getCode());
    assertEquals("/problems/invalid-cursor", error.getProblem().getType().toString());
    assertEquals("400 Invalid Cursor: " + error.getProblem().getDetail(), error.getMessage());
    assertEquals(error.getResponseHeaders().firstValue("X-Request-Id").orElseThrow(), error.getRequestId());
  }

  @Test
  void throwsAnErrorWithTheContentTypeIfAProxyResponds() {
    var error = assertThrows(ApiException.class,
        () -> once(FAILING_URL + "/java/html").listBrandedPhoneNumbers(request().build()));
    assertEquals("502 Unexpected Response: text/html instead of application/problem+json", error.getMessage());
    assertNull(error.getProblem());
    assertNull(error.getRequestId());
    assertTrue(error.getResponseBody().contains("Bad Gateway"));
  }

  @TestFactory
  Stream<DynamicTest> throwsA200ThatIsNoPageAsAnErrorThatShowsItsBeginning() {
    var starts = Map.of("login", "<h1>Log in</h1>" + ".".repeat(85), "other", "{\"ok\":true}");
    return starts.entrySet().stream().map(each -> DynamicTest.dynamicTest(each.getKey(), () -> {
      var failing = client(FAILING_URL + "/java/" + each.getKey());
      var error = assertThrows(ApiException.class, () -> failing.listBrandedPhoneNumbers(request().build()));
      assertEquals("200 Unexpected Response: not a page of numbers: " + each.getValue(), error.getMessage());
      assertEquals(200, error.getCode());
    }));
  }

  @TestFactory
  Stream<DynamicTest> rejectsAPageThat() {
    return Stream.of(System.getenv("MALFORMED").split(" ")).map(step -> DynamicTest.dynamicTest(step, () -> {
      var failing = client(FAILING_URL + "/java/" + step);
      var error = assertThrows(ApiException.class, () -> failing.listBrandedPhoneNumbers(request().build()));
      var message = error.getMessage();
      assertTrue(message.startsWith("200 Unexpected Response: not a page of numbers: "), message);
    }));
  }

  @Test
  void followsNoRedirectAndSaysWhereItLeadsTo() throws Exception {
    var url = failingUrl("moved*");
    var following = new ApiClient().setHttpClientBuilder(HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS));
    following.updateBaseUri(url);
    var error = assertThrows(
        ApiException.class, () -> collect(new BrandedPhoneNumbersApi(following), request()));
    assertEquals(
        "308 Unexpected Response: redirected to " + SERVICE_URL + ": set that as the base URL", error.getMessage());
    assertEquals(1, requests(url).size());
  }

  @TestFactory
  Stream<DynamicTest> throwsAtOnceIfTheBaseUrlHasNoScheme() {
    return Stream.of("localhost:3000", "numbers.example.com").map(url -> DynamicTest.dynamicTest(url, () -> {
      var error = assertThrows(IllegalArgumentException.class, () -> collect(client(url), request()));
      assertEquals("the base URL must begin with http:// or https://, unlike " + url, error.getMessage());
    }));
  }

  @Test
  void throwsAtOnceIfItDoesNotTrustTheCertificate() throws Exception {
    var before = Integer.parseInt(send(System.getenv("UNTRUSTED_COUNT_URL")));
    var error = assertThrows(
        ApiException.class, () -> collect(client(System.getenv("UNTRUSTED_URL")), request()));
    assertInstanceOf(SSLHandshakeException.class, error.getCause());
    assertEquals(before + 1, Integer.parseInt(send(System.getenv("UNTRUSTED_COUNT_URL"))));
  }

  @Test
  void retriesAfterAConnectionThatBreaksInTheTlsHandshake() throws Exception {
    try (var server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      var refusing = CompletableFuture.supplyAsync(() -> {
        try {
          for (int i = 0; i < 2; i++) {
            try (var connection = server.accept()) {
              connection.getInputStream().read();
              connection.shutdownOutput();
            }
          }
          server.close();
          return 2;
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
      });
      var broken = client("https://127.0.0.1:" + server.getLocalPort()).withRetryFor(Duration.ofSeconds(6));
      assertThrows(ApiException.class, () -> collect(broken, request()));
      assertEquals(2, refusing.get(1, TimeUnit.SECONDS));
    }
  }

  @Test
  void acceptsABaseUrlThatEndsWithASlash() {
    for (var url : List.of(SERVICE_URL + "/", FAILING_URL + "/java/ok/"))
      assertEquals(1, client(url).listBrandedPhoneNumbers(request().size(1).build()).getItems().size());
  }

  @Test
  void sendsAKey() {
    var client = new ApiClient();
    client.updateBaseUri(System.getenv("KEYED_URL"));
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + System.getenv("API_KEY")));
    assertEquals(25, new BrandedPhoneNumbersApi(client).listBrandedPhoneNumbers(request().build()).getItems().size());
  }

  @Test
  void retriesInEveryCallUnlessRetriesAreTurnedOff() {
    var byDefault = client(failingUrl("503,break,ok,429-1"));
    assertEquals(25, byDefault.listBrandedPhoneNumbers(request().build()).getItems().size());
    assertEquals(25, Pages.pageIfChanged(byDefault, null, request().build()).orElseThrow().getPage().getItems().size());
    var once = once(failingUrl("503,ok,break,429"));
    var error = assertThrows(ApiException.class, () -> once.listBrandedPhoneNumbers(request().build()));
    assertEquals("503 Unavailable: Try again.", error.getMessage());
    assertTrue(Pages.pageIfChanged(once, null, request().build()).isPresent());
    assertEquals(0, assertThrows(ApiException.class, () -> Pages.pageIfChanged(once, null, request().build())).getCode());
    assertEquals(429, assertThrows(ApiException.class, () -> collect(once, request())).getCode());
  }

  @TestFactory
  Stream<DynamicTest> givesUpWhenARetryWouldExceedItsTime() {
    return Stream.of("503,429-20*", "late*").map(steps -> DynamicTest.dynamicTest(steps, () -> {
      var url = failingUrl(steps);
      var hurried = client(url).withRetryFor(Duration.ofSeconds(6));
      assertThrows(ApiException.class, () -> hurried.listBrandedPhoneNumbers(request().build()));
      assertEquals(1, waits(url).size());
    }));
  }

  @TestFactory
  Stream<DynamicTest> findsHeadersInAnyCase() {
    return Stream.of("etag", "Etag", "ETag").map(name -> DynamicTest.dynamicTest(name, () -> {
      var headers = client(FAILING_URL + "/java/" + name).listBrandedPhoneNumbersWithHttpInfo(request().build()).getHeaders();
      assertTrue(headers.get("ETag").get(0).startsWith("W/"));
      assertEquals(headers.get("ETag"), headers.get("etag"));
      var error = assertThrows(ApiException.class,
          () -> once(FAILING_URL + "/java/503-1*," + name).listBrandedPhoneNumbers(request().build()));
      assertEquals("1", error.getResponseHeaders().firstValue("Retry-After").orElseThrow());
    }));
  }

  @TestFactory
  Stream<DynamicTest> pageIfChangedGivesAPageWithItsETagAndNothingWhileItHasNotChanged() {
    return Stream.of("etag", "Etag", "ETag").map(name -> DynamicTest.dynamicTest(name, () -> {
      var proxied = client(FAILING_URL + "/java/" + name);
      var held = Pages.pageIfChanged(proxied, null, request().size(2).build()).orElseThrow();
      assertEquals(ALL.get(1), held.getPage().getItems().get(1).getPhoneNumber());
      assertTrue(Pages.pageIfChanged(proxied, held.getEtag(), request().size(2).build()).isEmpty());
      var newer = Pages.pageIfChanged(proxied, held.getEtag(), request().size(3).build()).orElseThrow();
      assertEquals(3, newer.getPage().getItems().size());
      var damaged = request().nextCursor("damaged").build();
      assertThrows(ApiException.class, () -> Pages.pageIfChanged(proxied, held.getEtag(), damaged));
    }));
  }

  /** Returns a client whose requests time out after 300 milliseconds. */
  static BrandedPhoneNumbersApi hasty(String url) {
    var client = new ApiClient().setReadTimeout(Duration.ofMillis(300));
    client.updateBaseUri(url);
    return new BrandedPhoneNumbersApi(client);
  }

  @TestFactory
  Stream<DynamicTest> endsARequestInTime() {
    return Stream.of("silent", "stall", "trickle", "drip").map(step -> DynamicTest.dynamicTest(step, () -> {
      var error = assertThrows(ApiException.class,
          () -> hasty(FAILING_URL + "/java/" + step).listBrandedPhoneNumbers(request().build()));
      assertInstanceOf(HttpTimeoutException.class, error.getCause());
    }));
  }

  @Test
  void throwsA429WithRetryAfter() throws Exception {
    var url = failingUrl("429-1");
    var error = assertThrows(ApiException.class, () -> once(url).listBrandedPhoneNumbers(request().build()));
    assertEquals(1, requests(url).size());
    assertEquals(429, error.getCode());
    assertEquals("1", error.getResponseHeaders().firstValue("Retry-After").orElseThrow());
  }

  @Test
  void acceptsNewMembersAndValues() throws Exception {
    var page = client(System.getenv("GROWN_URL"))
        .listBrandedPhoneNumbers(request().phoneNumber("+14155550001").build());
    var number = page.getItems().get(0);
    assertEquals("+14155550001", number.getPhoneNumber());
    assertEquals("on hold", number.getStatus());
    assertEquals("voicemailGreeting", number.getCarrierStatuses().get(0).getFeature());
    assertEquals("expired.optIn", number.getCarrierStatuses().get(0).getDetailedStatus());
  }

  static List<String> collect(BrandedPhoneNumbersApi api, APIListBrandedPhoneNumbersRequest.Builder request) {
    try (var numbers = Pages.eachNumber(api, request.build())) {
      return numbers.map(BrandedPhoneNumber::getPhoneNumber).collect(Collectors.toList());
    }
  }

  static final List<String> ALL =
      IntStream.range(0, 240).mapToObj(i -> String.format("+1415555%04d", i)).collect(Collectors.toList());

  /** A base URL of the failing proxy (clients/live/failing.ts). */
  static String failingUrl(String steps) {
    return FAILING_URL + "/java-" + UUID.randomUUID() + "/" + steps;
  }

  /** Returns the requests to this URL: when each arrived, its headers, and the size of the response. */
  static JsonNode requests(String url) throws Exception {
    return JSON.readTree(send(url + "/requests"));
  }

  /** Returns the milliseconds between the requests to this URL. */
  static List<Double> waits(String url) throws Exception {
    return waits(url, 1);
  }

  /** Returns the milliseconds between each request to this URL and the one that was so many requests before it. */
  static List<Double> waits(String url, int distance) throws Exception {
    var requests = requests(url);
    return IntStream.range(distance, requests.size())
        .mapToObj(i -> requests.get(i).get("at").asDouble() - requests.get(i - distance).get("at").asDouble())
        .collect(Collectors.toList());
  }

  @Test
  void eachNumberYieldsEveryNumberOnceInOrderOverAllPages() {
    assertEquals(ALL, collect(api, request().size(7)));
  }

  @Test
  void eachNumberRequestsAPageOnlyWhenItIsRead() throws Exception {
    var url = failingUrl("ok");
    assertEquals(ALL.get(0), Pages.eachNumber(client(url), request().size(10).build()).findFirst().get().getPhoneNumber());
    assertEquals(List.of(), waits(url));
  }

  @Test
  void twelveProgramsThatShareOneRateLimitFinish() {
    var programs = Executors.newFixedThreadPool(12);
    var walks = Stream.generate(
            () -> CompletableFuture.supplyAsync(() -> collect(client(LIMITED_URL), request().size(20)), programs))
        .limit(12).collect(Collectors.toList());
    walks.forEach(walk -> assertEquals(ALL, walk.join()));
    programs.shutdown();
  }

  @Test
  void walksOfOneClientSendAtMostTenRequestsPerSecondSoNoneIsRejected() throws Exception {
    Thread.sleep(1100);
    var statuses = new ConcurrentLinkedQueue<Integer>();
    var client = new ApiClient().setResponseInterceptor(response -> statuses.add(response.statusCode()));
    client.updateBaseUri(LIMITED_URL);
    var paced = new BrandedPhoneNumbersApi(client);
    var other = CompletableFuture.supplyAsync(() -> collect(paced, request().size(20)));
    assertEquals(ALL, collect(paced, request().size(20)));
    assertEquals(ALL, other.join());
    assertEquals(Collections.nCopies(24, 200), new ArrayList<>(statuses));
  }

  @Test
  void eachNumberKeepsTheGivenPace() throws Exception {
    var url = failingUrl("ok");
    assertEquals(ALL, collect(client(url).withRequestsPerSecond(4), request().size(20)));
    waits(url, 4).forEach(wait -> assertTrue(wait > 990, wait.toString()));
  }

  @Test
  void eachPageResumesAfterThePageThatHadACursor() {
    var request = request().carrier(List.of("AT&T"));
    var first = Pages.eachPage(api, request.build()).findFirst().orElseThrow();
    var rest = Pages.eachPage(api, request.nextCursor(first.getNextCursor()).build());
    var sizes = Stream.concat(Stream.of(first), rest).map(page -> page.getItems().size());
    assertEquals(List.of(100, 100), sizes.collect(Collectors.toList()));
  }

  @TestFactory
  Stream<DynamicTest> eachPageThrowsIfACursorRepeats() {
    var counts = Map.of("cursor-a*", 1, "cursor-a,cursor-b,cursor-c,cursor-a*", 3);
    return counts.entrySet().stream().map(each -> DynamicTest.dynamicTest(each.getKey(), () -> {
      var pages = Pages.eachPage(client(failingUrl(each.getKey())), request().build()).iterator();
      for (int i = 0; i < each.getValue(); i++) pages.next();
      var error = assertThrows(ApiException.class, pages::next);
      assertEquals("200 Unexpected Response: the nextCursor a repeats", error.getMessage());
      assertEquals(200, error.getCode());
    }));
  }

  @Test
  void eachNumberRetriesEachPageAfterWaitsThatDoubleUpToEightSecondsEachWithARandomPart() throws Exception {
    var url = failingUrl("etag,break,503,429-1,html,half,504,ok,503");
    assertEquals(ALL, collect(client(url), request()));
    var waits = waits(url);
    assertEquals(9, waits.size());
    var least = List.of(500, 1000, 2000, 4000, 8000, 8000);
    for (int i = 0; i < 6; i++) assertTrue(waits.get(i) > least.get(i) - 10, waits.toString());
    assertTrue(waits.subList(0, 6).stream().mapToDouble(wait -> wait).sum() > 23_750, waits.toString());
    assertTrue(waits.get(5) < 15_000 && waits.get(7) < 7900, waits.toString());
  }

  @Test
  void eachPageDoesNotCountWhatItWaitsForItsPaceInTheTimeOfRetries() {
    var paced = client(failingUrl("ok,ok,ok,503")).withRetryFor(Duration.ofSeconds(2)).withRequestsPerSecond(1);
    var walks = Executors.newFixedThreadPool(4);
    var pages = Stream.generate(
            () -> CompletableFuture.supplyAsync(() -> Pages.eachPage(paced, request().build()).findFirst(), walks))
        .limit(4).collect(Collectors.toList());
    pages.forEach(page -> assertEquals(100, page.join().orElseThrow().getItems().size()));
    walks.shutdown();
  }

  @Test
  void eachNumberSlowsDownWithEach429AndRegainsItsPacePageByPage() throws Exception {
    var url = failingUrl("size=30,429,429,429");
    assertEquals(ALL, collect(client(url), request()));
    var waits = waits(url);
    // An eighth of ten requests per second, and a fiftieth more after each page.
    assertTrue(Collections.min(waits.subList(2, 6)) >= 990, waits.toString());
    assertTrue(Collections.min(waits.subList(6, waits.size())) < 900, waits.toString());
  }

  @Test
  void eachNumberWaitsUntilTheDateOrSoManySecondsInRetryAfter() throws Exception {
    var url = failingUrl("503-date,503-2,503-");
    assertEquals(ALL, collect(client(url), request()));
    var waits = waits(url);
    assertTrue(waits.get(0) > 990 && waits.get(1) > 1990 && waits.get(2) > 1990, waits.toString());
  }

  @TestFactory
  Stream<DynamicTest> eachNumberThrowsAtOnceWhatAskingAgainDoesNotHelp() {
    return Stream.of("500", "login", "silent").map(step -> DynamicTest.dynamicTest(step, () -> {
      var url = failingUrl(step);
      assertThrows(ApiException.class, () -> collect(hasty(url), request()));
      assertEquals(List.of(), waits(url));
    }));
  }

  @Test
  void eachNumberEndsWhileItWaitsWhenItsStreamIsClosed() {
    var numbers = Pages.eachNumber(client(failingUrl("503-50")), request().build());
    CompletableFuture.runAsync(numbers::close, CompletableFuture.delayedExecutor(2, TimeUnit.SECONDS));
    assertTimeout(Duration.ofSeconds(10), () -> assertThrows(CancellationException.class, numbers::count));
  }
}
