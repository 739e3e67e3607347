package conformance

import (
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// Run runs the suite over a fabric.
func Run(t *testing.T, f Fabric) {
	t.Run("RC", func(t *testing.T) {
		t.Run("Operations", func(t *testing.T) { runOperations(t, f, verbs.QPTypeRC) })
		t.Run("Atomics", func(t *testing.T) { runAtomics(t, f) })
		t.Run("LargeMessage", func(t *testing.T) { runLarge(t, f) })
		t.Run("Errors", func(t *testing.T) { runErrors(t, f) })
		t.Run("Flush", func(t *testing.T) { runFlush(t, f, verbs.QPTypeRC) })
		t.Run("Order", func(t *testing.T) { runOrder(t, f, verbs.QPTypeRC) })
		t.Run("PSNWrap", func(t *testing.T) { runWrap(t, f) })
		t.Run("Fence", func(t *testing.T) { runFence(t, f) })
		t.Run("Unsignaled", func(t *testing.T) { runUnsignaled(t, f) })
		t.Run("Rejected", func(t *testing.T) { runRejected(t, f) })
		t.Run("Events", func(t *testing.T) { runEvents(t, f) })
		t.Run("Windows", func(t *testing.T) { runWindows(t, f) })
		t.Run("SharedReceives", func(t *testing.T) { runShared(t, f) })
		t.Run("Tags", func(t *testing.T) { runTags(t, f) })
		t.Run("Placement", func(t *testing.T) { runPlacement(t, f) })
		t.Run("Refusals", func(t *testing.T) { runRefusals(t, f) })
	})
	t.Run("UC", func(t *testing.T) {
		require(t, f, FeatureUC)
		t.Run("Operations", func(t *testing.T) { runOperations(t, f, verbs.QPTypeUC) })
		t.Run("Order", func(t *testing.T) { runOrder(t, f, verbs.QPTypeUC) })
		t.Run("Flush", func(t *testing.T) { runFlush(t, f, verbs.QPTypeUC) })
		t.Run("SilentDrop", func(t *testing.T) { runSilentDrop(t, f) })
	})
	t.Run("UD", func(t *testing.T) {
		require(t, f, FeatureUD)
		t.Run("Operations", func(t *testing.T) { runDatagrams(t, f) })
		t.Run("Flush", func(t *testing.T) { runFlush(t, f, verbs.QPTypeUD) })
		t.Run("WrongQKey", func(t *testing.T) { runWrongQKey(t, f) })
		t.Run("TooLong", func(t *testing.T) { runTooLong(t, f) })
	})
}
