/* The end of a request without freeing each object.
 *
 * Zend's own manager forgets a request's memory as a whole, and so PHP skips most of the destruction of functions, classes,
 * constants, variables and plain objects ("fast shutdown") - but only while no other manager serves it. Ours forgets just as
 * well. So, at the moment when PHP would decide, everything that a fast shutdown does not look at is taken out of its sight.
 *
 * That moment is the closing of the request's resources: all destructors and shutdown functions have run by then, the last of
 * the resources whose end may call the program are closed, and no code of the program runs any more. Resources are closed
 * from the newest to the oldest; ours is made before the program starts. It has a name instead of a number, as persistent
 * resources have: numbers that programs see stay as they are, and get_resources() does not list it.
 */
#include "heap.h"

#include "zend_list.h"

static const char RESOURCE_NAME[] = "heapfit request";

static int resource_type;

static void forget_objects(const zend_objects_store *store)
{
    for (uint32_t i = 1; i < store->top; i++) {
        zend_object *object = store->object_buckets[i];
        /* Those with a function of their own may hold what is not in the request's memory. */
        if (IS_OBJ_VALID(object) && object->handlers->free_obj == zend_object_std_dtor)
            GC_ADD_FLAGS(object, IS_OBJ_FREE_CALLED);
    }
}

static void forget(zend_resource *resource)
{
    (void)resource;
    /* Set when a module came by dl(): its functions have to be removed from the tables. */
    if (EG(full_tables_cleanup)) return;
    zend_hash_discard(EG(function_table), EG(persistent_functions_count));
    zend_hash_discard(EG(class_table), EG(persistent_classes_count));
    zend_hash_discard(EG(zend_constants), EG(persistent_constants_count));
    zend_hash_init(&EG(symbol_table), 0, NULL, ZVAL_PTR_DTOR, 0);
    forget_objects(&EG(objects_store));
}

void teardown_start(int module_number)
{
    resource_type = zend_register_list_destructors_ex(forget, NULL, RESOURCE_NAME, module_number);
}

void teardown_begin_request(void)
{
    if (!settings.fast_shutdown) return;
    zend_resource *resource = emalloc(sizeof *resource);
    GC_SET_REFCOUNT(resource, 1);
    GC_TYPE_INFO(resource) = GC_RESOURCE | (GC_NOT_COLLECTABLE << GC_FLAGS_SHIFT);
    resource->handle = 0;
    resource->type = resource_type;
    resource->ptr = NULL;
    zval entry;
    ZVAL_RES(&entry, resource);
    zend_hash_str_add_new(&EG(regular_list), RESOURCE_NAME, sizeof RESOURCE_NAME - 1, &entry);
}
