package daemon

import (
	"strings"
	"testing"
)

func TestConfig_DeviceName_IsOneThatProgramsUnderstand(t *testing.T) {
	for name, good := range map[string]bool{
		"":                                   true, // the default
		"rnic0":                              true,
		"mlx5_0":                             true,
		"a.b-C":                              true,
		strings.Repeat("n", deviceNameMax):   true,
		strings.Repeat("n", deviceNameMax+1): false,
		"a/b":                                false,
		"a b":                                false,
		"a\nb":                               false,
		".":                                  false,
		"..":                                 false,
		"gr\xf6sse":                          false,
	} {
		if _, _, err := (Config{Device: name}).withDefaults(); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
