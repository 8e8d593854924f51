//! The work folder: finished cells by the hash of what they were made from, so that a killed run goes on.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::digest;
use crate::error::{Code, Error, Result};

/// A folder of finished parts; without a folder nothing is kept.
#[derive(Debug)]
pub struct Work {
    folder: Option<PathBuf>,
}

impl Work {
    /// Makes the folder.
    ///
    /// # Errors
    /// `output_failed`.
    pub fn open(folder: Option<&Path>) -> Result<Self> {
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder.join("cells"))
                .map_err(|e| Error::with(Code::OutputFailed, format!("can't make {}", folder.display()), e))?;
        }
        Ok(Self { folder: folder.map(Path::to_owned) })
    }

    /// The part of these inputs: kept from before, or made and kept now. What can't be read is made again.
    ///
    /// # Errors
    /// Those of `make`, and `output_failed`.
    pub fn part<T: Serialize + DeserializeOwned>(
        &self,
        inputs: &impl Serialize,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(folder) = &self.folder else { return make() };
        let path = folder.join("cells").join(format!("{}.json", digest(inputs)));
        if let Some(kept) = std::fs::read(&path).ok().and_then(|b| serde_json::from_slice(&b).ok()) {
            return Ok(kept);
        }
        let made = make()?;
        let failed = |e: std::io::Error| Error::with(Code::OutputFailed, format!("can't write {}", path.display()), e);
        let bytes = serde_json::to_vec(&made).map_err(|e| failed(e.into()))?;
        let unfinished = path.with_extension("part");
        std::fs::write(&unfinished, bytes).map_err(failed)?;
        std::fs::rename(&unfinished, &path).map_err(failed)?;
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_made_once_and_again_when_it_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work::open(Some(folder.path())).unwrap();
        let mut made = 0;
        let mut get = |inputs: &str| {
            work.part(&inputs, || {
                made += 1;
                Ok(vec![made])
            })
            .unwrap()
        };
        assert_eq!((get("a"), get("b"), get("a")), (vec![1], vec![2], vec![1]));
        for file in std::fs::read_dir(folder.path().join("cells")).unwrap() {
            std::fs::write(file.unwrap().path(), "{half").unwrap();
        }
        assert_eq!(get("a"), vec![3]);
    }
}
