// C's malloc called from Go, by many goroutines: on stacks that Go has made, below frames that C's tables do not know.
package main

/*
#include <stdlib.h>

struct node { struct node *next; long number; };

static struct node *allocate_node(long number, struct node *next)
{
	struct node *node = malloc(sizeof *node);
	if (node == NULL) abort();
	node->number = number;
	node->next = next;
	return node;
}
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

func work(seed int) int {
	var list *C.struct_node
	for i := 0; i < 5000; i++ {
		list = C.allocate_node(C.long(seed*i%1000), list)
		C.free(C.malloc(40))
	}
	sum := 0
	for list != nil {
		next := list.next
		sum += int(list.number)
		C.free(unsafe.Pointer(list))
		list = next
	}
	return sum
}

func main() {
	var group sync.WaitGroup
	sums := make([]int, 16)
	for i := range sums {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			sums[i] = work(i)
		}(i)
	}
	group.Wait()
	fmt.Println(sums)
}
