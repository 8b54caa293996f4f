// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/internal/controller/controllertest"
)

// nemesis injects one failure.
func (c *cluster) nemesis(random *prng.Stream) string {
	pick := func() string { return c.ids[random.IntN(len(c.ids))] }
	leader := c.leaderNow()
	if leader == "" {
		leader = pick()
	}
	switch random.IntN(6) {
	case 0, 1:
		_ = c.all[leader].Crash()
		return leader + " crashes, which leads"
	case 2:
		id := pick()
		_ = c.all[id].Crash()
		return id + " crashes"
	case 3:
		var to []string
		for _, id := range c.ids {
			if id != leader && random.Chance(0.7) {
				to = append(to, id)
			}
		}
		c.nets[leader].Cut(to)
		return fmt.Sprintf("%s, which leads, is not heard by %v", leader, to)
	case 4:
		to := pick()
		for _, id := range c.ids {
			if id != to && random.Chance(0.7) {
				c.nets[id].Cut([]string{to})
			}
		}
		return to + " does not hear"
	default:
		c.freeze(leader, true)
		return leader + " is stopped, which leads"
	}
}

func (c *cluster) leaderNow() (id string) {
	epoch := uint64(0)
	for _, x := range c.ids {
		if e := c.all[x].Leads(); e > epoch {
			id, epoch = x, e
		}
	}
	return id
}

// TestHistories: whatever fails among replicas and the network, clients see one controller that
// loses nothing it has acknowledged and applies nothing twice. Half the seeds let failures
// overlap.
func TestHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take their time")
	}
	seeds, kills := 3, 4
	if os.Getenv("MCASTLAB_SOAK") != "" {
		seeds, kills = 20, 20
	}
	from := 0
	if s := os.Getenv("MCASTLAB_SEED"); s != "" {
		var err error
		if from, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
		seeds = 1
	}
	for seed := from; seed < from+seeds; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			if kills < 10 { // because they mostly wait
				t.Parallel()
			}
			oneHistory(t, uint64(seed), kills)
		})
	}
}

func oneHistory(t *testing.T, seed uint64, kills int) {
	random := prng.New(seed)
	c := newCluster(t, 3+2*int(seed%2), 2)
	x := c.client(0)
	c.deploy(x)
	h := controllertest.New()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for who := range 3 {
		y := c.client(who)
		mine := random.Derive(fmt.Sprint("client ", who))
		all.Go(func() { h.Work(t.Context(), t, who, y, mine, stop) })
	}
	for range kills {
		<-time.After(time.Duration(50+random.IntN(200)) * time.Millisecond)
		t.Log(c.nemesis(&random))
		<-time.After(time.Duration(200+random.IntN(600)) * time.Millisecond)
		if seed%2 == 0 || random.Chance(0.4) {
			c.heal()
			c.leader()
		}
	}
	c.heal()
	c.leader()
	close(stop)
	all.Wait()
	c.agree(x)
	h.Read(t.Context(), 9, x)
	h.Check(t, fmt.Sprintf("MCASTLAB_SEED=%d go test ./internal/controller/replica -run Histories", seed))
}
