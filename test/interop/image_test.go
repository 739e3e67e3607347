package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/softrnic/softrnic/test/vmtest"
)

// guestPrograms are copied from the host, with their libraries.
var guestPrograms = []string{
	"ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat",
	"ib_atomic_bw", "ib_atomic_lat", "ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong",
	"ibv_ud_pingpong", "ibv_srq_pingpong", "rping", "ucmatose", "udaddy", "mckey", "cmtime",
	"rdma_server", "rdma_client", "rdma_xserver", "rdma_xclient", "rstream", "riostream", "udpong",
	"rcopy",
}

// image is what a guest is made of, and the directory of the programs of testdata, which are in it
// as well.
type image struct {
	vm       vmtest.Image
	programs string
	driver   driver
}

// ownPrograms do what no program of Debian does.
var ownPrograms = []string{"window", "differential"}

// buildPrograms compiles them against the real libraries.
func buildPrograms(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range ownPrograms {
		// One file, or a directory of them.
		sources, _ := filepath.Glob(filepath.Join("testdata", name, "*.c"))
		if len(sources) == 0 {
			sources = []string{filepath.Join("testdata", name+".c")}
		}
		args := append([]string{
			"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1",
			"-o", filepath.Join(dir, name),
		}, sources...)
		out, err := exec.Command("gcc", append(args, "-libverbs")...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("compile %s: %w: %s", name, err, out)
		}
	}
	return nil
}

// buildImage makes an image in dir, for a driver.
func buildImage(dir string, d driver) (image, error) {
	programs := filepath.Join(dir, "programs")
	if err := buildPrograms(programs); err != nil {
		return image{}, err
	}
	files := map[string]string{}
	for _, name := range ownPrograms {
		files["usr/bin/"+name] = filepath.Join(programs, name)
	}
	vm, err := vmtest.Build(dir, vmtest.Config{
		Driver: d.inGuest(), Programs: guestPrograms, Files: files,
	})
	return image{vm: vm, programs: programs, driver: d}, err
}
