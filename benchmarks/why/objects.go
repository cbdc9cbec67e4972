// Objects in Go's heap.
package main

import (
	"fmt"
	"io"
	"os"
)

type row struct {
	name   string
	values [12]int
}

func main() {
	kept := map[int]*row{}
	for i := 0; i < 1_000_000; i++ {
		kept[i] = &row{name: fmt.Sprint("name ", i)}
	}
	fmt.Println("ready")
	io.ReadAll(os.Stdin)
	fmt.Println(len(kept))
}
