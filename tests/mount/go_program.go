// go_program write|change|read: a program that calls the kernel without the C library, in the directory that
// it is started in. A step finds what the one before has left.
package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

func must(failed error) {
	if failed != nil {
		fmt.Println(failed)
		os.Exit(1)
	}
}

func block(writer, number int) []byte {
	out := make([]byte, 5000)
	for i := range out {
		out[i] = byte(1 + (writer*31+number*7+i)%251)
	}
	return out
}

// Goroutines write one file and files of their own.
func write() {
	shared, failed := os.Create("shared")
	must(failed)
	var writers sync.WaitGroup
	for writer := 0; writer < 8; writer++ {
		writers.Add(1)
		go func(writer int) {
			defer writers.Done()
			must(os.MkdirAll(fmt.Sprintf("d/%d", writer), 0o755))
			for number := 0; number < 50; number++ {
				_, failed := shared.WriteAt(block(writer, number), int64((number*8+writer)*5000))
				must(failed)
			}
			must(os.WriteFile(fmt.Sprintf("d/%d/own", writer), block(writer, 0), 0o640))
		}(writer)
	}
	writers.Wait()
	must(shared.Sync())
	must(shared.Close())
	log, failed := os.OpenFile("log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(failed)
	lines := bufio.NewWriter(log)
	for i := 0; i < 20000; i++ {
		fmt.Fprintln(lines, "line", i)
	}
	must(lines.Flush())
	child := exec.Command("echo", "by a child")
	child.Stdout = log
	must(child.Run())
	must(log.Close())
}

// io.Copy has the kernel copy; a map is changed.
func change() {
	source, failed := os.Open("shared")
	must(failed)
	target, failed := os.Create("copied")
	must(failed)
	count, failed := io.Copy(target, source)
	must(failed)
	fmt.Println(count)
	must(target.Truncate(count - 100))
	const access = syscall.PROT_READ | syscall.PROT_WRITE
	mapped, failed := syscall.Mmap(int(target.Fd()), 0, 100000, access, syscall.MAP_SHARED)
	must(failed)
	copy(mapped[777:], "mapped")
	must(syscall.Munmap(mapped))
	must(target.Close())
	must(os.Rename("d/3", "d/moved"))
	must(os.RemoveAll("d/5"))
	must(os.Symlink("../shared", "d/link"))
	must(os.Chmod("d/1/own", 0o600))
}

func read() {
	must(filepath.WalkDir(".", func(path string, entry fs.DirEntry, failed error) error {
		if failed != nil || !entry.Type().IsRegular() {
			return failed
		}
		content, failed := os.ReadFile(path)
		fmt.Printf("%s %x\n", path, sha256.Sum256(content))
		return failed
	}))
}

func main() {
	map[string]func(){"write": write, "change": change, "read": read}[os.Args[1]]()
}
