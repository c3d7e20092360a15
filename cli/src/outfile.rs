//! Files that appear whole or not at all.
//!
//! What is written goes to a temporary file beside the target, which takes the target's name when all of it is there.
//! A run that fails leaves neither half a file nor a temporary one, and an older file as it was. A target that is not
//! a regular file (a pipe, `/dev/null`) cannot be replaced and is written to directly.

use crate::failure::Failure;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, PoisonError};

/// How many names for a temporary file are tried; others come from runs of the same process id that were killed.
const MAX_NAMES: u32 = 1_000;

/// The temporary files there are, for a signal that ends the program.
static TEMPORARIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The temporary files that have not taken their names.
pub fn temporaries() -> Vec<PathBuf> {
    TEMPORARIES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Something else that a signal is to remove: a socket, and then its folder.
pub fn remember(temporary: &Path) {
    TEMPORARIES.lock().unwrap_or_else(PoisonError::into_inner).push(temporary.into());
}

/// It is gone, or has its name.
pub fn forget(temporary: &Path) {
    TEMPORARIES.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| other != temporary);
}

/// A path to write to, with links resolved, before anything has been touched.
#[derive(Debug)]
pub struct Target {
    given: PathBuf,
    place: Destination,
}

#[derive(Debug)]
enum Destination {
    /// A regular file, or none yet; `old` are the permissions of the file that is there.
    Replace { path: PathBuf, old: Option<Permissions> },
    /// Something that is no regular file.
    Into,
}

impl Target {
    /// Finds out what `given` is.
    pub fn resolve(given: &Path) -> Result<Self, Failure> {
        let place = Destination::of(given).map_err(|cause| Failure::Write { path: given.into(), cause })?;
        Ok(Self { given: given.into(), place })
    }

    /// The regular file that will be replaced or made; `None` for pipes and devices, which several may share.
    pub fn file(&self) -> Option<&Path> {
        match &self.place {
            Destination::Replace { path, .. } => Some(path),
            Destination::Into => None,
        }
    }

    /// Opens it for writing; from here on it is known that it can be written.
    pub fn open(self) -> Result<OutFile, Failure> {
        let Self { given, place } = self;
        let opened = match &place {
            Destination::Into => OpenOptions::new().write(true).open(&given).map(|file| (file, None)),
            Destination::Replace { path, old } => beside(path, old.as_ref()).map(|(file, temporary)| {
                (file, Some(Pending { temporary, path: path.clone(), renamed: false }))
            }),
        };
        match opened {
            Ok((file, pending)) => Ok(OutFile { given, file, pending }),
            Err(cause) => Err(Failure::Write { path: given, cause }),
        }
    }
}

impl Destination {
    fn of(given: &Path) -> io::Result<Self> {
        match fs::metadata(given) {
            Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => Ok(Self::Into),
            Ok(there) => {
                // A rename asks the directory alone: a file that is protected against writing must be asked itself.
                OpenOptions::new().write(true).open(given)?;
                Ok(Self::Replace { path: fs::canonicalize(given)?, old: Some(there.permissions()) })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = given.file_name().ok_or(error)?;
                Ok(Self::Replace { path: fs::canonicalize(directory(given))?.join(name), old: None })
            }
            Err(error) => Err(error),
        }
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new temporary file in the directory of `path`. Its name is short: the target's may be as long as names can be.
fn beside(path: &Path, permissions: Option<&Permissions>) -> io::Result<(File, PathBuf)> {
    let mut taken = io::ErrorKind::AlreadyExists.into();
    for n in 0..MAX_NAMES {
        let temporary = directory(path).join(format!(".mainspring-{}-{n}.tmp", process::id()));
        // A signal between the two would find a file that is not listed.
        let mut listed = TEMPORARIES.lock().unwrap_or_else(PoisonError::into_inner);
        match File::create_new(&temporary) {
            Ok(file) => {
                listed.push(temporary.clone());
                drop(listed);
                if let Some(permissions) = permissions {
                    // Not every file system has permissions to set; then there are none to keep.
                    let _ = file.set_permissions(permissions.clone());
                }
                return Ok((file, temporary));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}

/// A file that is being written.
#[derive(Debug)]
pub struct OutFile {
    given: PathBuf,
    file: File,
    pending: Option<Pending>,
}

/// A temporary file that has yet to take its name; it goes away if it never does.
#[derive(Debug)]
struct Pending {
    temporary: PathBuf,
    path: PathBuf,
    renamed: bool,
}

impl OutFile {
    /// Its path, as the user gave it.
    pub fn path(&self) -> &Path {
        &self.given
    }

    /// Where to write.
    pub fn writer(&mut self) -> &mut File {
        &mut self.file
    }

    /// Writes all of it and gives it its name.
    pub fn write(
        mut self,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PathBuf, Failure> {
        match content(&mut self.file) {
            Ok(()) => self.finish(),
            Err(cause) => Err(Failure::Write { path: self.given, cause }),
        }
    }

    /// Gives it its name. Returns the path as the user gave it.
    pub fn finish(self) -> Result<PathBuf, Failure> {
        let Self { given, file, pending } = self;
        drop(file);
        match pending.map_or(Ok(()), Pending::rename) {
            Ok(()) => Ok(given),
            Err(cause) => Err(Failure::Write { path: given, cause }),
        }
    }
}

impl Pending {
    fn rename(mut self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.path)?;
        self.renamed = true;
        forget(&self.temporary);
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.renamed {
            // It may be gone already; there is nothing better to do about one that cannot be removed.
            let _ = fs::remove_file(&self.temporary);
            forget(&self.temporary);
        }
    }
}
