// Stands for nothing but the headers that are compiled once for all tests (cmake/HeapfitTest.cmake).
