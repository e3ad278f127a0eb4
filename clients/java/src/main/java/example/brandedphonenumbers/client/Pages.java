package example.brandedphonenumbers.client;

import example.brandedphonenumbers.client.BrandedPhoneNumbersApi.APIListBrandedPhoneNumbersRequest;
import example.brandedphonenumbers.client.model.BrandedPhoneNumber;
import example.brandedphonenumbers.client.model.BrandedPhoneNumberPage;
import java.net.http.HttpHeaders;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.Spliterator;
import java.util.Spliterators.AbstractSpliterator;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import javax.annotation.Nullable;

/** Reads all pages, or one page if it has changed. */
public final class Pages {
  private Pages() {}

  /**
   * Returns every page of the numbers that match, from the first page or the one that the request's cursor leads to. The
   * cursor of a page, {@code getNextCursor()}, leads to the page after it, so a walk that ended there is resumed with
   * {@code Pages.eachPage(api, request.toBuilder().nextCursor(cursor).build())}.
   *
   * <p>Each page is retried as any other call ({@link BrandedPhoneNumbersApi#withRetryFor}). Sends at most as many requests in
   * any one second as {@link BrandedPhoneNumbersApi#withRequestsPerSecond(int)} says.
   *
   * @param api the client to use
   * @param request the filters, and optionally the size of a page and the cursor to start at
   * @return the pages; each is requested when it is read. The stream throws an {@link ApiException} if a request fails, and a
   *     {@link CancellationException} if another thread closes it while it waits
   */
  public static Stream<BrandedPhoneNumberPage> eachPage(
      BrandedPhoneNumbersApi api, APIListBrandedPhoneNumbersRequest request) {
    Walk walk = new Walk(api, request);
    return StreamSupport.stream(walk, false).onClose(walk.closed::countDown);
  }

  /**
   * Returns every number that matches, page after page.
   *
   * @param api the client to use
   * @param request the filters, and optionally the size of a page and the cursor to start at
   * @return the numbers; each page is requested when its first number is read. The stream throws as that of {@link #eachPage}
   */
  public static Stream<BrandedPhoneNumber> eachNumber(
      BrandedPhoneNumbersApi api, APIListBrandedPhoneNumbersRequest request) {
    return eachPage(api, request).flatMap(page -> page.getItems().stream());
  }

  /** A page, and the {@code ETag} that identifies this version of it. */
  public static final class TaggedPage {
    private final BrandedPhoneNumberPage page;
    private final @Nullable String etag;

    private TaggedPage(BrandedPhoneNumberPage page, @Nullable String etag) {
      this.page = page;
      this.etag = etag;
    }

    /**
     * Returns the page.
     *
     * @return the page
     */
    public BrandedPhoneNumberPage getPage() {
      return page;
    }

    /**
     * Returns the {@code ETag} of the page.
     *
     * @return the tag, or null if a proxy has removed it
     */
    public @Nullable String getEtag() {
      return etag;
    }
  }

  /**
   * Returns a page with its {@code ETag}, or nothing if it has not changed since it had this {@code etag} (304 Not Modified).
   *
   * @param api the client to use
   * @param etag the tag of the page that the caller has, or null to always get the page
   * @param request the filters, the size and the cursor of that page
   * @return the page, or an empty Optional if it has not changed
   * @throws ApiException if the request fails
   */
  public static Optional<TaggedPage> pageIfChanged(
      BrandedPhoneNumbersApi api, @Nullable String etag, APIListBrandedPhoneNumbersRequest request) {
    try {
      ApiResponse<BrandedPhoneNumberPage> response =
          api.listBrandedPhoneNumbersWithHttpInfo(request, etag == null ? null : Map.of("If-None-Match", etag));
      List<String> tags = response.getHeaders().get("ETag");
      return Optional.of(new TaggedPage(response.getData(), tags == null ? null : tags.get(0)));
    } catch (ApiException e) {
      if (e.getCode() == 304) return Optional.empty();
      throw e;
    }
  }

  private static final class Walk extends AbstractSpliterator<BrandedPhoneNumberPage> {
    final CountDownLatch closed = new CountDownLatch(1);
    private final BrandedPhoneNumbersApi api;
    private final Set<String> sent = new HashSet<>();
    private @Nullable APIListBrandedPhoneNumbersRequest request;

    Walk(BrandedPhoneNumbersApi api, APIListBrandedPhoneNumbersRequest request) {
      super(Long.MAX_VALUE, Spliterator.ORDERED | Spliterator.DISTINCT | Spliterator.NONNULL);
      this.api = api;
      this.request = request.size() == null ? request.toBuilder().size(100).build() : request;
    }

    @Override
    public boolean tryAdvance(Consumer<? super BrandedPhoneNumberPage> action) {
      if (request == null) return false;
      if (request.nextCursor() != null) sent.add(request.nextCursor());
      ApiResponse<BrandedPhoneNumberPage> response = api.listPaced(request, closed);
      BrandedPhoneNumberPage page = response.getData();
      String cursor = page.getNextCursor();
      if (sent.contains(cursor)) {
        // It leads back to a page that was read before: the walk would not end.
        HttpHeaders headers = HttpHeaders.of(response.getHeaders(), (name, value) -> true);
        throw new ApiException(response.getStatusCode(), headers, page.toString(), "the nextCursor " + cursor + " repeats");
      }
      request = cursor == null ? null : request.toBuilder().nextCursor(cursor).build();
      action.accept(page);
      return true;
    }
  }
}
