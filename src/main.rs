//! The memsluice program.

fn main() -> std::process::ExitCode {
    memsluice::cli::main()
}
