// Counts the words of the files that are named, in a table that SQLite keeps in memory: Go's own
// objects are on Go's heap, and what SQLite and cgo allocate comes from malloc.
package main

/*
#cgo LDFLAGS: -lsqlite3
#include <sqlite3.h>
#include <stdlib.h>
*/
import "C"

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"unsafe"
)

const (
	create = "CREATE TABLE words (word TEXT PRIMARY KEY, times INTEGER) WITHOUT ROWID; BEGIN"
	add    = "INSERT INTO words VALUES (?, 1) ON CONFLICT (word) DO UPDATE SET times = times + 1"
	sum    = "SELECT count(*), sum(times) FROM words"
)

type database struct{ handle *C.sqlite3 }

func main() {
	var words database
	must(C.sqlite3_open(text(":memory:"), &words.handle))
	must(C.sqlite3_exec(words.handle, text(create), nil, nil, nil))
	statement := words.prepare(add)
	for _, name := range os.Args[1:] {
		file, err := os.Open(name)
		if err != nil {
			log.Fatal(err)
		}
		scanner := bufio.NewScanner(file)
		scanner.Split(bufio.ScanWords)
		for scanner.Scan() {
			word := text(scanner.Text())
			must(C.sqlite3_bind_text(statement, 1, word, -1, nil))
			C.sqlite3_step(statement)
			must(C.sqlite3_reset(statement))
			C.free(unsafe.Pointer(word))
		}
		if err := scanner.Err(); err != nil {
			log.Fatal(err)
		}
		file.Close()
	}
	result := words.prepare(sum)
	C.sqlite3_step(result)
	fmt.Println(C.sqlite3_column_int(result, 0), "different words of", C.sqlite3_column_int(result, 1))
}

// text returns a copy from malloc, as cgo makes it.
func text(words string) *C.char { return C.CString(words) }

func (words database) prepare(query string) *C.sqlite3_stmt {
	var statement *C.sqlite3_stmt
	must(C.sqlite3_prepare_v2(words.handle, text(query), -1, &statement, nil))
	return statement
}

func must(code C.int) {
	if code != C.SQLITE_OK {
		log.Fatal(C.GoString(C.sqlite3_errstr(code)))
	}
}
