package example.brandedphonenumbers.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.DoubleUnaryOperator;
import java.util.function.Supplier;

/**
 * Keeps all walks with one client within the rate limit, also if several processes share one key.
 *
 * <p>A process alone never exceeds the limit. One that shares it gets a 429 now and then, and each halves its pace; it regains
 * it page by page. Without that, a process that is refused would find all slots of every second taken by faster ones, for
 * minutes.
 */
final class Pace {
  private static final Duration LONGEST_PAUSE = Duration.ofMillis(50);

  private final List<Slot> slots = new ArrayList<>();
  /** How much of the allowed requests per second this client takes. */
  private double share = 1;

  /** The slot of one request. */
  private static final class Slot {
    boolean isRunning = true;
    /** When the slot becomes free, in nanoseconds, once its request has ended. */
    long freeAt;
  }

  /**
   * Waits for a slot, then sends a request.
   *
   * @param closed cancels the wait when it reaches zero
   */
  <T> T run(int perSecond, CountDownLatch closed, Supplier<T> send) {
    Slot slot = takeSlot(perSecond, closed);
    try {
      T result = send.get();
      setShare(value -> Math.min(1, value + 0.02));
      return result;
    } catch (ApiException e) {
      if (Retries.isRateLimited(e)) setShare(value -> Math.max(0.1, value / 2));
      throw e;
    } finally {
      release(slot);
    }
  }

  private synchronized void setShare(DoubleUnaryOperator change) {
    share = change.applyAsDouble(share);
  }

  /**
   * Makes a slot free after one second. Not one second after the request was sent: the service counts it when it arrives, which
   * may be just before the response. The random part leaves room for other processes.
   */
  private synchronized void release(Slot slot) {
    slot.isRunning = false;
    slot.freeAt = System.nanoTime() + ThreadLocalRandom.current().nextLong(1_000_000_000L, 1_100_000_000L);
  }

  private Slot takeSlot(int perSecond, CountDownLatch closed) {
    while (true) {
      Duration pause;
      synchronized (this) {
        long now = System.nanoTime();
        slots.removeIf(slot -> !slot.isRunning && slot.freeAt - now <= 0);
        if (slots.size() < Math.max(1, (int) (perSecond * share))) {
          Slot slot = new Slot();
          slots.add(slot);
          return slot;
        }
        // It is unknown when running requests end, so check again soon.
        pause = Duration.ofNanos(slots.stream().filter(slot -> !slot.isRunning)
            .mapToLong(slot -> slot.freeAt - now).reduce(LONGEST_PAUSE.toNanos(), Math::min));
      }
      Retries.sleep(pause, closed);
    }
  }
}
