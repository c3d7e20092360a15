//! Boot images, and where the files that go into them are.

use mainspring_abi::boot::{HEADER, MAGIC, MANIFEST, NAME, ROW};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::{env, fs, io};

/// Why a machine could not be put together.
#[derive(Debug)]
pub enum BuildError {
    /// The kernel or a program has not been built.
    NotBuilt {
        /// What was looked for.
        path: PathBuf,
    },
    /// A file could not be read or written.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A name is too long for the image's table.
    LongName(String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt { path } => write!(
                f,
                "{} is not there\nhelp: run `make kernel` in a checkout, or let MAINSPRING_KERNEL_DIR name the folder with the kernel",
                tidy(path).display()
            ),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::LongName(name) => write!(f, "the name {name} has more than {NAME} bytes"),
        }
    }
}

impl std::error::Error for BuildError {}

/// The path without `..`, as a person would write it.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        let goes_up = part == Component::ParentDir;
        if !(goes_up && matches!(tidy.components().next_back(), Some(Component::Normal(_)))) {
            tidy.push(part);
        } else {
            tidy.pop();
        }
    }
    tidy
}

/// Where `make kernel` puts the kernel and the programs: `MAINSPRING_KERNEL_DIR`, or the build folder.
#[must_use]
pub fn kernel_dir() -> PathBuf {
    if let Some(dir) = env::var_os("MAINSPRING_KERNEL_DIR") {
        return dir.into();
    }
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    target.join("kernel/release")
}

/// Which kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Build {
    /// The one to use.
    #[default]
    Plain,
    /// One that looks at its invariants at every turn.
    Checked,
    /// One that counts everything that may take time.
    Measured,
}

/// The kernel's file. Those that are not plain are in folders of their own beside it.
pub fn kernel(build: Build) -> Result<PathBuf, BuildError> {
    let dir = match build {
        Build::Plain => kernel_dir(),
        Build::Checked => kernel_dir().with_file_name("checked"),
        Build::Measured => kernel_dir().with_file_name("measured"),
    };
    let path = dir.join("kernel");
    if path.exists() { Ok(path) } else { Err(BuildError::NotBuilt { path }) }
}

/// Bytes of a boot image: the manifest, the programs that it may start, and further pieces.
pub fn build(manifest: &str, programs: &[&str], pieces: &[(&str, &[u8])]) -> Result<Vec<u8>, BuildError> {
    let mut parts: Vec<(String, Vec<u8>)> = vec![(MANIFEST.to_owned(), manifest.as_bytes().to_vec())];
    for program in programs {
        let path = kernel_dir().join(program);
        match fs::read(&path) {
            Ok(bytes) => parts.push(((*program).to_owned(), bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BuildError::NotBuilt { path });
            }
            Err(error) => return Err(BuildError::Io { path, error }),
        }
    }
    parts.extend(pieces.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())));
    let mut image = vec![0; HEADER + parts.len() * ROW];
    image[..8].copy_from_slice(&MAGIC);
    image[8..12].copy_from_slice(&(parts.len() as u32).to_le_bytes());
    for (number, (name, bytes)) in parts.into_iter().enumerate() {
        if name.len() > NAME {
            return Err(BuildError::LongName(name));
        }
        image.resize(image.len().next_multiple_of(16), 0);
        let (row, offset) = (HEADER + number * ROW, image.len() as u64);
        image[row..row + name.len()].copy_from_slice(name.as_bytes());
        image[row + NAME..row + NAME + 8].copy_from_slice(&offset.to_le_bytes());
        image[row + NAME + 8..row + ROW].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        image.extend(bytes);
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_abi::boot::{Image, ImageError};

    #[test]
    fn what_is_put_into_an_image_is_found_in_it() {
        let bytes =
            build("start x console", &[], &[("plan", b"abc"), ("empty", b"")]).expect("no file is needed");
        let image = Image::new(&bytes).expect("it was just made");
        assert_eq!(image.find(MANIFEST), Some(&b"start x console"[..]));
        assert_eq!(image.find("plan"), Some(&b"abc"[..]));
        assert_eq!(image.find("empty"), Some(&b""[..]));
        assert_eq!(image.find("other"), None);
    }

    #[test]
    fn a_damaged_image_is_refused_and_never_read_beyond_its_end() {
        let bytes = build("x", &[], &[("plan", b"abc")]).expect("no file is needed");
        assert_eq!(Image::new(b"MSBOOT1").err(), Some(ImageError::NotAnImage));
        assert_eq!(Image::new(&bytes[..40]).err(), Some(ImageError::Truncated));
        let mut far = bytes.clone();
        far[HEADER + NAME..HEADER + NAME + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(Image::new(&far).err(), Some(ImageError::BadRow(0)));
        for cut in 0..bytes.len() {
            let _ = Image::new(&bytes[..cut]);
        }
    }

    #[test]
    fn a_program_that_was_not_built_is_named() {
        let error = build("x", &["no-such-program"], &[]).expect_err("there is none");
        assert!(error.to_string().contains("make kernel"), "{error}");
    }
}
