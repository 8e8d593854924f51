//! Settings of the scoring kernel. They change speed, never a score.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kernel {
    /// The fastest that is measured: the CPU.
    #[default]
    Auto,
    /// The CPU with its best instruction set.
    Cpu,
    /// An NVIDIA device.
    Cuda,
    /// FAISS proposes for large windows, integers decide.
    Faiss,
}

/// Kernel settings.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Score {
    /// Kernel.
    pub kernel: Kernel,
    /// `libfaiss.so`.
    pub faiss: Option<PathBuf>,
    /// Number of the CUDA device.
    pub device: usize,
}
