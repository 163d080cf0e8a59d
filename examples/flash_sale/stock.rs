//! The stock: a number in a plain file, which protects nothing.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The file with the number of items left.
#[derive(Debug, Clone)]
pub(crate) struct Stock {
    file: PathBuf,
}

impl Stock {
    pub(crate) fn at(file: &Path) -> Stock {
        Stock { file: file.to_owned() }
    }

    pub(crate) fn read(&self) -> io::Result<u32> {
        let text = fs::read_to_string(&self.file)?;
        text.trim().parse().map_err(|_| io::Error::other(format!("no number in the file: {text:?}")))
    }

    /// Writes all digits over the old ones in one go. Without the lock the control loses updates that way, but never
    /// reads half a number.
    pub(crate) fn write(&self, left: u32) -> io::Result<()> {
        let mut file = File::options().write(true).create(true).truncate(false).open(&self.file)?;
        file.write_all(format!("{left:>10}\n").as_bytes())
    }
}
