package rdmacm_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

// overTCP are the devices of iWARP that connections are tried on.
var overTCP = map[string]string{
	"default": "iwarp0=iwarp",
	"no crc":  "iwarp0=iwarp,crc=off",
	"markers": "iwarp0=iwarp,markers=on",
	"large":   "iwarp0=iwarp,fpdu=large",
	"mpa 1":   "iwarp0=iwarp,mpa=1",
}

func TestDial_IWARP_ConnectsAndMovesData(t *testing.T) {
	for name, device := range overTCP {
		t.Run(name, func(t *testing.T) {
			nic := nictest.Start(t, softrnic.Config{Devices: []string{device}})
			cfg := rdmacm.Config{NIC: nic, Device: "iwarp0"}
			hello := cfg
			hello.PrivateData = []byte("hello")
			l := listen(t, "rdma", "127.0.0.1:0", cfg)
			a, b := meet(t, l, l.Addr().String(), hello, cfg)
			for _, c := range []*rdmacm.Conn{a, b} {
				if got := c.QP().PD().Context().Device(); got.Name != "iwarp0" ||
					got.Transport != verbs.TransportIWARP {
					t.Errorf("a queue pair on %+v", got)
				}
				if s := c.QP().State(); s != verbs.QPStateRTS {
					t.Errorf("a connected queue pair is %v", s)
				}
			}
			if !bytes.HasPrefix(b.PrivateData(), []byte("hello")) {
				t.Errorf("private data: %q", b.PrivateData())
			}
			write(t, a, b)
			if err := a.Disconnect(nictest.Soon(t)); err != nil {
				t.Error(err)
			}
			<-b.Done()
			if !errors.Is(b.Err(), rdmacm.ErrDisconnected) {
				t.Errorf("the other side: %v", b.Err())
			}
		})
	}
}

// write has a write bytes into the memory of b and read them back.
func write(t *testing.T, a, b *rdmacm.Conn) {
	t.Helper()
	const size = 100_000
	target, err := b.QP().PD().AllocMemory(size, verbs.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	source, err := a.QP().PD().AllocMemory(2*size, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	for i := range size {
		source.Bytes()[i] = byte(i * 7)
	}
	for i, op := range []verbs.WROpcode{verbs.WRWrite, verbs.WRRead} {
		_, err := a.QP().PostSend(verbs.SendWR{
			Opcode: op, RemoteAddr: target.Addr(), RKey: target.RKey(), Flags: verbs.SendSignaled,
			SGE: source.SGE(i*size, size),
		})
		if err != nil {
			t.Fatal(err)
		}
		if wc := next(t, a.SendCQ()); wc.Status != verbs.WCSuccess {
			t.Fatalf("%v: %v", op, wc.Status)
		}
	}
	if !bytes.Equal(source.Bytes()[:size], source.Bytes()[size:]) {
		t.Error("what was written is not what is read back")
	}
}

// A listener at a wildcard takes requests by every device, each on its own.
func TestListen_Wildcard_TakesRequestsByEveryDevice(t *testing.T) {
	nic := twin(t)
	l := listen(t, "rdma4", ":0", rdmacm.Config{NIC: nic})
	address := "127.0.0.1:" + portOf(l.Addr().String())
	for _, device := range []string{"rnic0", "iwarp0", ""} {
		a, b := meet(t, l, address, rdmacm.Config{NIC: nic, Device: device}, rdmacm.Config{NIC: nic})
		want := device
		if want == "" {
			want = "rnic0"
		}
		for _, c := range []*rdmacm.Conn{a, b} {
			if got := c.QP().PD().Context().Device().Name; got != want {
				t.Errorf("%q: a queue pair on %s", device, got)
			}
		}
		write(t, a, b)
	}
}

// Only who listens on iWARP is found there.
func TestDial_IWARP_NobodyThere_IsRefused(t *testing.T) {
	nic := twin(t)
	l := listen(t, "rdma4", "127.0.0.1:0", rdmacm.Config{NIC: nic, Device: "rnic0"})
	_, err := rdmacm.Dial(nictest.Soon(t), "rdma", l.Addr().String(),
		rdmacm.Config{NIC: nic, Device: "iwarp0"})
	var no *rdmacm.RejectedError
	if !errors.As(err, &no) || no.Reason != rdmacm.ReasonInvalidServiceID ||
		!errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}

func TestRequest_IWARP_Reject_TellsThePeer(t *testing.T) {
	nic := twin(t)
	cfg := rdmacm.Config{NIC: nic, Device: "iwarp0"}
	l := listen(t, "rdma", "127.0.0.1:0", cfg)
	refused := make(chan error, 1)
	go func() {
		r, err := l.Accept(nictest.Soon(t))
		if err == nil {
			err = r.Reject([]byte("not today"))
		}
		refused <- err
	}()
	_, err := rdmacm.Dial(nictest.Soon(t), "rdma", l.Addr().String(), cfg)
	var no *rdmacm.RejectedError
	if !errors.As(err, &no) || no.Reason != rdmacm.ReasonConsumer ||
		!bytes.HasPrefix(no.PrivateData, []byte("not today")) {
		t.Errorf("got %v", err)
	}
	if err := <-refused; err != nil {
		t.Error(err)
	}
}
