package brandedphonenumbers

import (
	"context"
	"math/rand"
	"net/http"
	"sync"
	"time"
)

// defaultRequestsPerSecond is what the service allows by default.
const defaultRequestsPerSecond = 10

// pace keeps all walks with one client within the rate limit, also if several processes share one key.
//
// A process alone never exceeds the limit. One that shares it gets a 429 now and then, and each halves its pace; it regains
// it page by page. Without that, a process that is refused would find all slots of every second taken by faster ones, for
// minutes.
type pace struct {
	lock  sync.Mutex
	slots []*slot
	// withheld is how much of the allowed requests per second this client leaves to others, from 0 to 0.9.
	withheld float64
}

// slot is for one request.
type slot struct {
	// freeAt is when the slot becomes free; zero while its request runs.
	freeAt time.Time
}

// paced waits for a slot, then calls send.
func paced[T any](ctx context.Context, p *pace, perSecond int, send attempt[T]) (*T, *http.Response, error) {
	taken, err := p.takeSlot(ctx, perSecond)
	if err != nil {
		return nil, nil, err
	}
	result, response, err := send()
	p.lock.Lock()
	defer p.lock.Unlock()
	// Not one second after the request was sent: the service counts it when it arrives, which may be just before the
	// response. The random part leaves room for other processes.
	taken.freeAt = time.Now().Add(time.Second + time.Duration(rand.Int63n(int64(100*time.Millisecond))))
	if err == nil {
		p.withheld = max(0, p.withheld-0.02)
	} else if isRateLimited(response) {
		p.withheld = min(0.9, (1+p.withheld)/2)
	}
	return result, response, err
}

func (p *pace) takeSlot(ctx context.Context, perSecond int) (*slot, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		taken, pause := p.tryTakeSlot(perSecond)
		if taken != nil {
			return taken, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// tryTakeSlot returns a slot, or how long to wait before the next try.
func (p *pace) tryTakeSlot(perSecond int) (*slot, time.Duration) {
	p.lock.Lock()
	defer p.lock.Unlock()
	now := time.Now()
	// It is unknown when running requests end, so check again soon.
	pause := 50 * time.Millisecond
	busy := []*slot{}
	for _, one := range p.slots {
		if one.freeAt.IsZero() || one.freeAt.After(now) {
			busy = append(busy, one)
		}
		if one.freeAt.After(now) {
			pause = min(pause, one.freeAt.Sub(now))
		}
	}
	p.slots = busy
	if len(busy) >= max(1, int(float64(perSecond)*(1-p.withheld))) {
		return nil, pause
	}
	taken := &slot{}
	p.slots = append(p.slots, taken)
	return taken, 0
}
