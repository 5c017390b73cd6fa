//! The allocator of the process.
#![allow(unsafe_code)]

/// Steps allocate and free hundreds of small objects on all threads; mimalloc takes a fifth less time for that than glibc's allocator. Huge pages
/// stay off: they would raise memory use by half.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc 2, which the bindings do not name: after how many milliseconds free memory goes back to the system.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Memory that is free goes back to the system at once, instead of when its thread next allocates: a thread without work would keep what its last
/// work took, a third of the services' memory after a load. It costs a tenth more CPU at full load (docs/performance.md).
pub(crate) fn give_back_at_once() {
    // SAFETY: the options are read and written as numbers, and one that does not exist is ignored.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    // The number of an option may change with a version of mimalloc: ten milliseconds are what this one has, and no option near it.
    #[test]
    fn the_option_is_that_of_the_delay() {
        // SAFETY: as above.
        let get = |option| unsafe { libmimalloc_sys::mi_option_get(option) };
        assert_eq!(get(PURGE_DELAY), 10);
        assert!(get(PURGE_DELAY - 1) != 10 && get(PURGE_DELAY + 1) != 10);
        give_back_at_once();
        assert_eq!(get(PURGE_DELAY), 0);
    }
}
