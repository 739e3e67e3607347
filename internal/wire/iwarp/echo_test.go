package iwarp

import "testing"

// Linux's siw sends the bits of a request back in its reply: they must not say anything there that
// it does not mean.
func TestFrame_BitsOfARequestInAReply_SayNothingOfLargeFPDUs(t *testing.T) {
	request := Frame{Revision: Revision2, Enhanced: true, LargeFPDU: true}
	b := request.Append(nil)
	if f, n, err := ParseRequest(b); err != nil || n != len(b) || !f.LargeFPDU {
		t.Errorf("request %v, %d, %v", f, n, err)
	}
	echo := append([]byte(replyKey), b[keyLen:]...)
	if f, n, err := ParseReply(echo); err != nil || n != len(b) || f.LargeFPDU {
		t.Errorf("echo %v, %d, %v", f, n, err)
	}
	reply := request
	reply.IsReply = true
	if f, _, err := ParseReply(reply.Append(nil)); err != nil || !f.LargeFPDU {
		t.Errorf("reply %v, %v", f, err)
	}
}
