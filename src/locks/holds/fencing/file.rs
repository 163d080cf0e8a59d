//! The newest token in a file, for several processes of one machine.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    base::sync::Mutex,
    error::{Error, Result},
    locks::holds::fencing::{
        checker::{FencingError, not_stale},
        token::FencingToken,
    },
};

/// Two records in turn, in blocks of their own: a crash in the midst of a write spoils one, and the other one is the newest
/// token that any check has passed.
const SLOTS: [u64; 2] = [0, 4096];
const RECORD: usize = 32;
const MAGIC: [u8; 8] = *b"fencing1";

/// A [`FencingChecker`](crate::FencingChecker) that keeps the newest token in a file, for all processes of one machine that
/// write to the same storage. It survives the crash of a process and of the machine.
///
/// Each check takes the file's lock (`flock`), and so waits for other checks; a check with a newer token writes 32
/// bytes and waits until they are on the disk. The file has to be on a local file system. Do not delete it: a new file
/// knows no token.
///
/// A check and the write that it allows have to be one step, or another process comes in between:
/// [`fenced`](FileFencingChecker::fenced) has the file locked as long as the work takes.
///
/// ```
/// use curator_locks::{FencingError, FencingToken, FileFencingChecker};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("fencing-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let fence = FileFencingChecker::open(directory.join("account.fence"))?;
/// let (early, late) = (FencingToken::from_value(7), FencingToken::from_value(12));
/// fence.fenced(late, || std::fs::write(directory.join("account"), "80"))??;
/// let refused = fence.fenced(early, || std::fs::write(directory.join("account"), "110"));
/// assert!(matches!(refused, Err(FencingError::Stale(stale)) if stale.newest == late));
/// assert_eq!(std::fs::read(directory.join("account"))?, b"80");
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
pub struct FileFencingChecker {
    path: PathBuf,
    /// Threads of one process share the file's lock, so they need one of their own.
    file: Mutex<File>,
}

impl FileFencingChecker {
    /// Opens the file, or makes it; blocks until a new one is on the disk. Its directory has to exist.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<FileFencingChecker> {
        let path = path.as_ref().to_owned();
        let file = open(&path).map_err(|error| failed(&path, error))?;
        Ok(FileFencingChecker { path, file: Mutex::new(file) })
    }

    /// Records the token of an exclusive lock. Blocks while another process or thread checks, and until a newer token
    /// is on the disk.
    ///
    /// # Errors
    /// [`FencingError::Stale`] if a newer one was shown before, by whichever process; [`FencingError::Failed`] with
    /// [`Error::Io`]: whether it was recorded is unknown then, and it may be checked again.
    pub fn check(&self, token: FencingToken) -> Result<(), FencingError> {
        self.fenced(token, || ())
    }

    /// Like [`check`](FileFencingChecker::check), and does the work before any other process can show its token: the
    /// others block as long as the work takes. The work must not use this checker.
    ///
    /// # Errors
    /// As [`check`](FileFencingChecker::check); the work was not begun then.
    pub fn fenced<R>(&self, token: FencingToken, work: impl FnOnce() -> R) -> Result<R, FencingError> {
        let mut file = self.file.lock();
        let (mut locked, newest, slot) = self.look(&mut file, File::lock)?;
        not_stale(token, newest)?;
        if newest != Some(token) {
            write(&mut locked, slot, token).map_err(|error| failed(&self.path, error))?;
        }
        Ok(work())
    }

    /// Compares the token of a read lock with the newest one of a writer, and records nothing; see
    /// [`FencingChecker::check_shared`](crate::FencingChecker::check_shared).
    ///
    /// # Errors
    /// [`FencingError::Stale`] if a younger writer has shown its token before; [`FencingError::Failed`].
    pub fn check_shared(&self, token: FencingToken) -> Result<(), FencingError> {
        self.fenced_shared(token, || ())
    }

    /// Like [`check_shared`](FileFencingChecker::check_shared), and does the work, beside other readers but before any
    /// writer can show its token. The work must not use this checker.
    ///
    /// # Errors
    /// As [`check_shared`](FileFencingChecker::check_shared); the work was not begun then.
    pub fn fenced_shared<R>(&self, token: FencingToken, work: impl FnOnce() -> R) -> Result<R, FencingError> {
        let mut file = self.file.lock();
        let (_locked, newest, _) = self.look(&mut file, File::lock_shared)?;
        not_stale(token, newest)?;
        Ok(work())
    }

    /// The newest token of an exclusive lock so far. Blocks while another process or thread checks one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn newest(&self) -> Result<Option<FencingToken>> {
        let mut file = self.file.lock();
        Ok(self.look(&mut file, File::lock_shared)?.1)
    }

    /// Locks the file. Returns the newest token too, and the slot for the next one.
    fn look<'f>(
        &self,
        file: &'f mut File,
        lock: fn(&File) -> io::Result<()>,
    ) -> Result<(Locked<'f>, Option<FencingToken>, u64)> {
        lock(file).map_err(|error| failed(&self.path, error))?;
        let mut locked = Locked(file);
        let (newest, slot) = newest(&mut locked).map_err(|error| failed(&self.path, error))?;
        Ok((locked, newest, slot))
    }
}

impl fmt::Debug for FileFencingChecker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileFencingChecker").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The locked file, unlocked on drop, after a panic of the caller's work too.
struct Locked<'f>(&'f mut File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // The file's lock goes with the file at the latest.
        let _ = self.0.unlock();
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::Io { what: format!("the fencing token in {}", path.display()), source: Arc::new(error) }
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.len() == 0 {
        file.sync_all()?;
        // The file's name has to be on the disk, too: a file that is not there after a crash knows no token.
        #[cfg(unix)]
        if let Some(directory) = path.parent() {
            let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            File::open(directory)?.sync_all()?;
        }
    }
    Ok(file)
}

fn newest(file: &mut Locked<'_>) -> io::Result<(Option<FencingToken>, u64)> {
    let [first, second] = SLOTS;
    match (read(file, first)?, read(file, second)?) {
        (Some(one), Some(other)) if one > other => Ok((Some(one), second)),
        (_, Some(other)) => Ok((Some(other), first)),
        (Some(one), None) => Ok((Some(one), second)),
        // At most a first write has begun, and has not come to its end.
        (None, None) if file.0.metadata()?.len() <= RECORD as u64 => Ok((None, first)),
        (None, None) => Err(io::Error::new(io::ErrorKind::InvalidData, "no record in it is whole")),
    }
}

fn read(file: &mut Locked<'_>, slot: u64) -> io::Result<Option<FencingToken>> {
    let mut record = Vec::with_capacity(RECORD);
    file.0.seek(SeekFrom::Start(slot))?;
    (&mut *file.0).take(RECORD as u64).read_to_end(&mut record)?;
    let token = record.get(MAGIC.len()..RECORD - 8).and_then(|bytes| bytes.try_into().ok());
    Ok(token.map(FencingToken::from_bytes).filter(|token| record == record_of(*token)))
}

fn write(file: &mut Locked<'_>, slot: u64, token: FencingToken) -> io::Result<()> {
    file.0.seek(SeekFrom::Start(slot))?;
    file.0.write_all(&record_of(token))?;
    file.0.sync_data()
}

fn record_of(token: FencingToken) -> Vec<u8> {
    let mut record = [&MAGIC[..], &token.to_bytes()].concat();
    // FNV-1a: against a record that was written in part, not against an enemy.
    let sum = record
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    record.extend(sum.to_be_bytes());
    record
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests {
    use std::fs;

    use super::*;

    fn token(value: i64) -> FencingToken {
        FencingToken::from_value(value)
    }

    fn temporary() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fence");
        (directory, path)
    }

    #[test]
    fn the_newest_token_survives_the_checker() {
        let (_directory, path) = temporary();
        let first = FileFencingChecker::open(&path).unwrap();
        assert_eq!(first.newest().unwrap(), None);
        for value in [5, 5, 7, 12] {
            first.check(token(value)).unwrap();
        }
        let second = FileFencingChecker::open(&path).unwrap();
        drop(first);
        assert_eq!(second.newest().unwrap(), Some(token(12)));
        let refused = second.check(token(11)).unwrap_err();
        assert!(matches!(refused, FencingError::Stale(stale) if stale.newest == token(12)));
        second.check_shared(token(12)).unwrap();
        second.check_shared(token(15)).unwrap();
        assert!(second.check_shared(token(11)).is_err());
        assert_eq!(second.newest().unwrap(), Some(token(12)), "readers take nothing down");
        second.check(token(13)).unwrap();
    }

    #[test]
    fn a_write_that_was_cut_off_anywhere_leaves_the_token_before_it() {
        let (_directory, path) = temporary();
        let checker = FileFencingChecker::open(&path).unwrap();
        for value in [1, 2, 3] {
            checker.check(token(value)).unwrap();
            let before = fs::read(&path).unwrap();
            let (_, slot) = newest(&mut Locked(&mut checker.file.lock())).unwrap();
            let slot = usize::try_from(slot).unwrap();
            for written in 0..RECORD {
                let mut torn = before.clone();
                torn.resize(torn.len().max(slot + written), 0);
                torn[slot..slot + written].copy_from_slice(&record_of(token(value + 1))[..written]);
                fs::write(&path, &torn).unwrap();
                assert_eq!(checker.newest().unwrap(), Some(token(value)), "{written} bytes of {}", value + 1);
            }
            fs::write(&path, &before).unwrap();
        }
    }

    #[test]
    fn a_first_write_that_was_cut_off_leaves_no_token() {
        let (_directory, path) = temporary();
        fs::write(&path, &record_of(token(1))[..20]).unwrap();
        let checker = FileFencingChecker::open(&path).unwrap();
        assert_eq!(checker.newest().unwrap(), None);
        checker.check(token(1)).unwrap();
        assert_eq!(checker.newest().unwrap(), Some(token(1)));
    }

    #[test]
    fn a_file_that_is_no_fence_is_an_error() {
        let (_directory, path) = temporary();
        fs::write(&path, [b'x'; 5000]).unwrap();
        let checker = FileFencingChecker::open(&path).unwrap();
        assert!(matches!(checker.check(token(1)), Err(FencingError::Failed(Error::Io { .. }))));
        assert!(matches!(FileFencingChecker::open(path.join("below")), Err(Error::Io { .. })));
    }

    #[test]
    fn threads_of_one_process_exclude_each_other() {
        let (_directory, path) = temporary();
        let checker = FileFencingChecker::open(&path).unwrap();
        let inside = Mutex::new(());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (checker, inside) = (&checker, &inside);
                scope.spawn(move || {
                    for value in 0..25 {
                        let work = || inside.try_lock().map(drop).is_some();
                        let value = token(value * 4 + thread + 1);
                        assert!(checker.fenced(value, work).unwrap_or(true), "two at a time");
                    }
                });
            }
        });
        assert_eq!(checker.newest().unwrap(), Some(token(100)));
    }
}
