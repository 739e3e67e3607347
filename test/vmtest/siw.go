package vmtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Driver is one of the kernel's software devices.
type Driver struct {
	// Link is its name for netlink, and that of its provider.
	Link string
	// Modules are those that it needs beside what every guest has.
	Modules []string
	// IsCRCRequired asks for a module of siw that refuses connections without MPA's CRC.
	IsCRCRequired bool
}

// Rxe is RoCE v2 in the kernel, its device rxe0; Siw is iWARP, its device siw0.
var (
	Rxe = Driver{Link: "rxe", Modules: []string{"rdma_rxe"}}
	Siw = Driver{Link: "siw", Modules: []string{"iw_cm", "crc32c_generic", "libcrc32c", "siw"}}
)

// addOwnModules adds modules that the kernel's package does not bring to those that it does.
func (d *Driver) addOwnModules(files map[string]string, root string) error {
	if d.Link != Siw.Link || files["siw"] != "" && !d.IsCRCRequired {
		return nil
	}
	file, err := buildSiw(filepath.Base(root), d.IsCRCRequired)
	files["siw"] = file
	return err
}

// buildSiw compiles Soft-iWARP, once: Debian's kernel leaves it out. The source is the kernel's own
// of the same version. Preconditions: the image's name is that of its package.
func buildSiw(imagePackage string, isCRCRequired bool) (file string, err error) {
	version, ok := strings.CutPrefix(imagePackage, "linux-image-")
	if !ok {
		return "", fmt.Errorf("%s is no package of a kernel, and has no siw", imagePackage)
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	name := "siw-" + version
	if isCRCRequired {
		name += "-crc"
	}
	done := filepath.Join(cache, name)
	file = filepath.Join(done, "siw.ko")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	partial, err := os.MkdirTemp(cache, "partial-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	if err := compileSiw(partial, version, isCRCRequired); err != nil {
		return "", err
	}
	built := filepath.Join(partial, "built")
	if err := os.MkdirAll(built, 0o755); err != nil {
		return "", err
	}
	made := filepath.Join(partial, "siw", "siw.ko")
	if err := os.Rename(made, filepath.Join(built, "siw.ko")); err != nil {
		return "", err
	}
	if err := os.Rename(built, done); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return file, nil
}

var (
	neededPackage  = regexp.MustCompile(`(?m)^\s*Depends: (linux-\S+)$`)
	upstream       = regexp.MustCompile(`^\d+\.\d+`)
	includeOfOther = regexp.MustCompile(`(?m)^include /usr/src/`)
)

// compileSiw leaves siw/siw.ko in dir.
func compileSiw(dir, version string, isCRCRequired bool) error {
	headers := "linux-headers-" + version
	out, err := exec.Command("apt-cache", "depends", headers).Output()
	if err != nil {
		return fmt.Errorf("apt-cache depends %s: %w", headers, err)
	}
	tree := filepath.Join(dir, "headers")
	packages := []string{headers}
	for _, m := range neededPackage.FindAllSubmatch(out, -1) {
		if name := string(m[1]); !strings.HasPrefix(name, "linux-image-") {
			packages = append(packages, name)
		}
	}
	for _, name := range packages {
		deb, err := download(dir, name)
		if err != nil {
			return err
		}
		if out, err := exec.Command("dpkg-deb", "-x", deb, tree).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w: %s", name, err, out)
		}
	}
	// The headers for a processor refer to the common ones where those would be installed.
	build := filepath.Join(tree, "usr", "src", headers)
	makefile := filepath.Join(build, "Makefile")
	text, err := os.ReadFile(makefile)
	if err != nil {
		return err
	}
	text = includeOfOther.ReplaceAll(text, []byte("include "+tree+"/usr/src/"))
	if err := os.WriteFile(makefile, text, 0o644); err != nil {
		return err
	}
	if err := extractSiw(dir, "linux-source-"+upstream.FindString(version)); err != nil {
		return err
	}
	source := filepath.Join(dir, "siw")
	if isCRCRequired {
		if err := requireCRC(filepath.Join(source, "siw_main.c")); err != nil {
			return err
		}
	}
	compile := exec.Command("make", "-s", "-C", build, "M="+source, "CONFIG_RDMA_SIW=m", "modules")
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("compile siw for %s: %w: %s", version, err, out)
	}
	return exec.Command("strip", "--strip-debug", filepath.Join(source, "siw.ko")).Run()
}

// extractSiw leaves the directory siw of the kernel's source in dir. The package is an archive that
// holds the archive of the source.
func extractSiw(dir, name string) error {
	deb, err := download(dir, name)
	if err != nil {
		return err
	}
	const inside = "drivers/infiniband/sw/siw"
	pipeline := []*exec.Cmd{
		exec.Command("dpkg-deb", "--fsys-tarfile", deb),
		exec.Command("tar", "-xO", "./usr/src/"+name+".tar.xz"),
		exec.Command("xz", "-dc"),
		exec.Command("tar", "-x", "-C", dir, "--strip-components=4", name+"/"+inside),
	}
	for i, c := range pipeline {
		c.Stderr = io.Discard
		if i == 0 {
			continue
		}
		if c.Stdin, err = pipeline[i-1].StdoutPipe(); err != nil {
			return err
		}
	}
	for _, c := range pipeline {
		if err := c.Start(); err != nil {
			return fmt.Errorf("unpack %s: %w", name, err)
		}
	}
	for i := len(pipeline) - 1; i >= 0; i-- {
		if err := pipeline[i].Wait(); err != nil {
			return fmt.Errorf("unpack %s: %v: %w", name, pipeline[i].Args, err)
		}
	}
	return nil
}

// requireCRC changes a constant of the driver's: it has no parameter for it.
func requireCRC(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const before, after = "const bool mpa_crc_required;", "const bool mpa_crc_required = true;"
	if !strings.Contains(string(text), before) {
		return fmt.Errorf("%s has no line %q", file, before)
	}
	return os.WriteFile(file, []byte(strings.Replace(string(text), before, after, 1)), 0o644)
}

// download fetches a package of Debian's into dir.
func download(dir, name string) (deb string, err error) {
	c := exec.Command("apt-get", "-o", "APT::Sandbox::User=root", "download", name)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get download %s: %w: %s", name, err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%d packages came of apt-get download %s", len(found), name)
	}
	return found[0], nil
}

// cacheDir is where what takes long to make is kept.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "softrnic", "interop")
	return cache, os.MkdirAll(cache, 0o755)
}
