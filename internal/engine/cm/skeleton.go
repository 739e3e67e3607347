package cm

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Engine is the communication manager of one adapter.
type Engine struct{ cfg Config }

var unbuilt = rdma.Refuse(syscall.ENOSYS, "connection management is not built yet")

// New returns an engine without listeners.
func New(cfg Config) *Engine { return &Engine{cfg: cfg} }

// Listen makes an engine accept requests and queries for services with service&mask.
func (e *Engine) Listen(service, mask uint64, backlog int, cookie uint32) *rdma.Refusal {
	return unbuilt
}

// Unlisten ends the listeners with a cookie.
func (e *Engine) Unlisten(cookie uint32) {}

// Taken says that the application has taken the request: it counts against the backlog no more.
func (e *Engine) Taken(id ID) {}

// Connect sends a REQ.
func (e *Engine) Connect(now clock.Time, p *ConnectParams) (ID, *rdma.Refusal) { return 0, unbuilt }

// Accept sends a REP.
func (e *Engine) Accept(now clock.Time, id ID, p *AcceptParams) *rdma.Refusal { return unbuilt }

// Ready sends the RTU.
func (e *Engine) Ready(now clock.Time, id ID) *rdma.Refusal { return unbuilt }

// Reject sends a REJ.
func (e *Engine) Reject(now clock.Time, id ID, p *RejectParams) *rdma.Refusal { return unbuilt }

// Delay sends an MRA.
func (e *Engine) Delay(now clock.Time, id ID, timeout uint8) *rdma.Refusal { return unbuilt }

// Established says that data came in on the passive QP, which stands for a lost RTU.
func (e *Engine) Established(now clock.Time, id ID) {}

// Disconnect sends a DREQ.
func (e *Engine) Disconnect(now clock.Time, id ID, private []byte) *rdma.Refusal { return unbuilt }

// Release forgets an ID.
func (e *Engine) Release(now clock.Time, id ID) {}

// QueryService sends a SIDR_REQ.
func (e *Engine) QueryService(now clock.Time, p *SIDRParams) (ID, *rdma.Refusal) { return 0, unbuilt }

// AnswerService sends a SIDR_REP.
func (e *Engine) AnswerService(now clock.Time, id ID, a *SIDRAnswer) *rdma.Refusal { return unbuilt }

// HandleMAD takes a MAD that came to QP1.
func (e *Engine) HandleMAD(now clock.Time, path *Path, source rdma.QPN, b []byte) {}

// HandleTimeout does what is due.
func (e *Engine) HandleTimeout(now clock.Time) {}

// PollTransmit takes the next message.
func (e *Engine) PollTransmit(now clock.Time, m *Message) bool { return false }

// PollTimeout returns when HandleTimeout is due.
func (e *Engine) PollTimeout() clock.Time { return clock.Never }

// PollEvent takes the next event.
func (e *Engine) PollEvent(v *Event) bool { return false }
