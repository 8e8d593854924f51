#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| memsluice_fuzz::adapters(data));
