//! The memsluice program.

/// RocksDB and librdkafka allocate by it too: with glibc's arenas the resident memory of a process creeps up under
/// bursts although nothing leaks.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    memsluice::cli::main()
}
