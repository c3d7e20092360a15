//! The registry of grants: which program was granted what on this host.
//!
//! One file for each grant, in `/run/mainspring` for root and in `$XDG_RUNTIME_DIR/mainspring` for all other users. The
//! process that decides holds the lock, an `flock` that ends with its holder. An entry is written before the first thing
//! that it names is made, and removed after the last of them is gone; so what a crash leaves behind is always in the
//! registry. An entry is dead when the process that supervises it and the guardian that stands in for it are.

use crate::admission::Claim;
use crate::cgroup::{GroupSet, Hierarchies};
use crate::error::HostError;
use crate::parse_cpu_list;
use crate::process::Identity;
use crate::tree::Tree;
use mainspring_abi::{CpuSet, Nanos};
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, thread};

/// The environment variable that names another directory.
pub const RUN_DIR_VARIABLE: &str = "MAINSPRING_RUN_DIR";
const SYSTEM: &str = "/run/mainspring";
const VERSION: u32 = 1;
/// More grants than this are refused: each costs admission time.
const MOST: usize = 1024;
/// No entry is longer, and no more is read of a file.
const LONGEST: u64 = 256 * 1024;
/// How long a guardian may take to end what it guards.
const PATIENCE: Duration = Duration::from_secs(15);

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The form of this file.
    pub version: u32,
    /// The grant's id, which is also the name of its file and of its groups.
    pub id: String,
    /// What to call it.
    pub name: String,
    /// The command line, for people.
    pub command: Vec<String>,
    /// The user that it belongs to.
    pub uid: u32,
    /// The process that supervises it.
    pub owner: Identity,
    /// The process that ends it when the owner is gone.
    pub guardian: Option<Identity>,
    /// When it was granted, in seconds since 1970.
    pub since_unix_s: u64,
    /// CPU time in each period.
    pub budget_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// From the start of a period to the time by which the budget is due.
    pub deadline_ns: u64,
    /// Where it may run, as a list.
    pub cpus: String,
    /// Whether others are kept off those CPUs.
    #[serde(default)]
    pub exclusive: bool,
    /// The CPUs that admission counts it on.
    pub homes: Vec<u32>,
    /// Its memory, if bounded.
    pub memory_bytes: Option<u64>,
    /// What holds it to its budget: `quota`, `deadline`, `cpuset`, `memory`, `affinity`.
    pub enforced: Vec<String>,
    /// Its groups.
    pub groups: GroupSet,
}

impl Entry {
    /// What admission counts. Nothing is promised to a grant that nothing enforces.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        let promised = self.enforced.iter().any(|means| means == "quota" || means == "deadline");
        let cpus = parse_cpu_list(&self.cpus).unwrap_or(CpuSet::EMPTY);
        promised.then(|| Claim {
            name: format!("{} (process {})", self.name, self.owner.pid),
            budget: Nanos::new(self.budget_ns),
            period: Nanos::new(self.period_ns),
            deadline: Nanos::new(self.deadline_ns),
            cpus,
        })
    }

    /// The CPUs that it has to itself, and what to call it.
    #[must_use]
    pub fn lease(&self) -> Option<(String, CpuSet)> {
        let cpus = parse_cpu_list(&self.cpus).ok().filter(|_| self.exclusive)?;
        Some((format!("{} (process {})", self.name, self.owner.pid), cpus))
    }

    /// The processes under the grant.
    #[must_use]
    pub fn tree(&self) -> Tree<'_> {
        Tree::new(&self.groups, &self.id)
    }

    /// Whether its supervisor, or the guardian in its place, is there to end it.
    #[must_use]
    pub fn is_attended(&self) -> bool {
        self.owner.is_alive() || self.guardian.as_ref().is_some_and(Identity::is_alive)
    }
}

/// A directory of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    directory: PathBuf,
}

impl Registry {
    /// This user's registry, made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made or used.
    pub fn open() -> Result<Self, HostError> {
        Self::at(&own_directory())
    }

    /// A registry at a given place, made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made or used.
    pub fn at(directory: &Path) -> Result<Self, HostError> {
        let failed = |cause| HostError::Registry { path: directory.to_owned(), cause };
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed)?;
        let owner = fs::metadata(directory).map_err(failed)?.uid();
        if owner != geteuid().as_raw() {
            // In a directory that any user may write, such as /tmp, another user may have made it first.
            let cause = io::Error::new(io::ErrorKind::PermissionDenied, format!("belongs to user {owner}"));
            return Err(failed(cause));
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until no other process decides, and keeps others from deciding.
    ///
    /// # Errors
    /// If the lock cannot be had.
    pub fn lock(&self) -> Result<Locked<'_>, HostError> {
        let path = self.directory.join("lock");
        let failed = |cause| HostError::Registry { path: path.clone(), cause };
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| failed(errno.into()))?;
        Ok(Locked { registry: self, _lock: lock })
    }

    /// Ends trees that have no supervisor any more, and waits for guardians at work. Then the lock is held, and every
    /// entry has its supervisor.
    ///
    /// # Errors
    /// If the registry cannot be used, or an abandoned tree does not end.
    pub fn lock_swept(&self) -> Result<Locked<'_>, HostError> {
        let begun = Instant::now();
        loop {
            let locked = self.lock()?;
            let entries = match locked.entries() {
                Err(HostError::ForeignEntry { path, why }) => {
                    if !self.salvage(&path) {
                        return Err(HostError::ForeignEntry { path, why });
                    }
                    continue;
                }
                entries => entries?,
            };
            if let Some(abandoned) = entries.iter().find(|entry| !entry.is_attended()) {
                let abandoned = abandoned.clone();
                drop(locked);
                self.end(&abandoned)?;
                continue;
            }
            if begun.elapsed() > PATIENCE || entries.iter().all(|entry| entry.owner.is_alive()) {
                return Ok(locked);
            }
            drop(locked);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends a grant: its processes, its groups, and its entry. It may be done twice, and by several at once.
    ///
    /// # Errors
    /// What is left, and why. The entry then stays for the next attempt.
    pub fn end(&self, entry: &Entry) -> Result<(), HostError> {
        let failed = |cause| HostError::Process { what: "ending the processes of a grant", cause };
        entry.tree().kill().map_err(failed)?;
        entry.groups.remove()?;
        let locked = self.lock()?;
        // A file that is no entry does not keep a process from removing its own.
        let mut others = self.readable()?;
        let Some(own) = others.iter().position(|other| other.id == entry.id) else { return Ok(()) };
        // The entry of the file may know more of what was enabled than ours: another grant may have left it that.
        let own = others.remove(own);
        let before: Vec<GroupSet> = others.iter().map(|other| other.groups.clone()).collect();
        own.groups.disable_above(&mut others.iter_mut().map(|other| &mut other.groups).collect::<Vec<_>>());
        for (other, before) in others.iter().zip(&before) {
            if other.groups != *before {
                locked.write(other)?;
            }
        }
        locked.remove(&entry.id)
    }

    /// A file is no entry: damaged, perhaps. If the process that its name tells of is gone, so is its grant: what is left of that
    /// is ended, by the name of its groups, and the file is removed. Whether it was.
    fn salvage(&self, path: &Path) -> bool {
        let id = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let parts = id.split_once('-').map(|(pid, ticks)| (pid.parse::<i32>(), ticks.parse::<u64>()));
        let Some((Ok(pid), Ok(started_ticks))) = parts else { return false };
        if Identity::of(pid).is_ok_and(|now| now.started_ticks == started_ticks) {
            return false;
        }
        let groups = Hierarchies::discover()
            .map(|hierarchies| GroupSet::plan(&hierarchies, &["cpu", "cpuset", "memory"], id).0)
            .unwrap_or_default();
        let ended =
            Tree::new(&groups, id).kill().is_ok() && Tree::new(&GroupSet::default(), id).kill().is_ok();
        ended && groups.remove().is_ok() && fs::remove_file(path).is_ok()
    }

    /// The entries that can be read.
    fn readable(&self) -> Result<Vec<Entry>, HostError> {
        self.read(|path, bytes| parse(path, bytes).map(Some).or(Ok(None)))
    }

    fn path_of(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    /// The entries of a directory that may not be there. Those that end while they are read are left out.
    fn read_all(&self) -> Result<Vec<Entry>, HostError> {
        self.read(|path, bytes| parse(path, bytes).map(Some))
    }

    fn read(
        &self,
        parse: impl Fn(&Path, &[u8]) -> Result<Option<Entry>, HostError>,
    ) -> Result<Vec<Entry>, HostError> {
        let failed = |path: &Path, cause| HostError::Registry { path: path.to_owned(), cause };
        let files = match fs::read_dir(&self.directory) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(|cause| failed(&self.directory, cause))?,
        };
        let mut entries = Vec::new();
        for file in files {
            let path = file.map_err(|cause| failed(&self.directory, cause))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match read_bounded(&path) {
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(failed(&path, cause)),
                Ok(bytes) => entries.extend(parse(&path, &bytes)?),
            }
        }
        entries.sort_by(|a, b| (a.since_unix_s, &a.id).cmp(&(b.since_unix_s, &b.id)));
        Ok(entries)
    }
}

/// Registries that other users keep, for reading: root's for every user, and every user's for root.
#[must_use]
pub fn others() -> Vec<Registry> {
    if env::var_os(RUN_DIR_VARIABLE).is_some() {
        return Vec::new();
    }
    let directories = if geteuid().is_root() {
        let users = fs::read_dir("/run/user").into_iter().flatten().filter_map(Result::ok);
        users.map(|user| user.path().join("mainspring")).collect()
    } else {
        vec![PathBuf::from(SYSTEM)]
    };
    directories.into_iter().map(|directory| Registry { directory }).collect()
}

/// What others were granted and still attend to. A registry that cannot be read counts as empty.
#[must_use]
pub fn granted_by_others() -> Vec<Entry> {
    let entries = others().into_iter().flat_map(|registry| registry.read_all().unwrap_or_default());
    entries.filter(Entry::is_attended).collect()
}

fn own_directory() -> PathBuf {
    if let Some(directory) = env::var_os(RUN_DIR_VARIABLE) {
        return directory.into();
    }
    if geteuid().is_root() {
        return SYSTEM.into();
    }
    match env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) => PathBuf::from(directory).join("mainspring"),
        None => env::temp_dir().join(format!("mainspring-{}", geteuid())),
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Entry, HostError> {
    let foreign = |why: String| HostError::ForeignEntry { path: path.to_owned(), why };
    let mut entry: Entry = serde_json::from_slice(bytes).map_err(|error| foreign(error.to_string()))?;
    // A name is a cell of a line wherever it is shown.
    entry.name = entry.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if entry.version != VERSION {
        return Err(foreign(format!("version {} is not {VERSION}", entry.version)));
    }
    let named = path.file_stem().is_some_and(|stem| stem == entry.id.as_str());
    if !named || !entry.groups.belongs_to(&entry.id) {
        return Err(foreign("the grant has another name than its file".to_owned()));
    }
    Ok(entry)
}

/// A registry whose lock this process holds.
#[derive(Debug)]
pub struct Locked<'a> {
    registry: &'a Registry,
    _lock: Flock<File>,
}

impl Locked<'_> {
    /// All entries, the oldest first.
    ///
    /// # Errors
    /// If a file cannot be read, or is no entry.
    pub fn entries(&self) -> Result<Vec<Entry>, HostError> {
        self.registry.read_all()
    }

    /// Writes an entry, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, entry: &Entry) -> Result<(), HostError> {
        let path = self.registry.path_of(&entry.id);
        let new = path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            serde_json::to_writer_pretty(&mut file, entry)?;
            file.write_all(b"\n")?;
            fs::rename(&new, &path)
        };
        write().map_err(|cause| HostError::Registry { path: path.clone(), cause })
    }

    /// Adds an entry, if there is room.
    ///
    /// # Errors
    /// If there are too many, or it cannot be written.
    pub fn insert(&self, entry: &Entry) -> Result<(), HostError> {
        if self.entries()?.len() >= MOST {
            return Err(HostError::TooMany { most: MOST });
        }
        self.write(entry)
    }

    fn remove(&self, id: &str) -> Result<(), HostError> {
        let path = self.registry.path_of(id);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(HostError::Registry { path, cause }),
            _ => Ok(()),
        }
    }
}

/// A new entry with the fields that are the same for every caller.
pub(crate) fn blank(id: String, owner: Identity) -> Entry {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Entry {
        version: VERSION,
        id,
        name: String::new(),
        command: Vec::new(),
        uid: geteuid().as_raw(),
        owner,
        guardian: None,
        since_unix_s: since.as_secs(),
        budget_ns: 0,
        period_ns: 0,
        deadline_ns: 0,
        cpus: String::new(),
        exclusive: false,
        homes: Vec::new(),
        memory_bytes: None,
        enforced: Vec::new(),
        groups: GroupSet::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(Registry);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("mainspring-host-{}-{name}", std::process::id()));
            Self(Registry::at(&path).expect("a registry"))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.directory());
        }
    }

    fn entry(id: &str) -> Entry {
        let mut entry = blank(id.into(), Identity::current().expect("this process"));
        (entry.budget_ns, entry.period_ns, entry.deadline_ns) = (20_000_000, 100_000_000, 100_000_000);
        entry.cpus = "0".into();
        entry
    }

    #[test]
    fn an_entry_is_there_until_its_grant_ends() {
        let scratch = Scratch::new("ends");
        let locked = scratch.0.lock().expect("the lock");
        locked.insert(&entry("1")).expect("inserted");
        assert_eq!(locked.entries().expect("read"), [entry("1")]);
        drop(locked);
        scratch.0.end(&entry("1")).expect("ended");
        scratch.0.end(&entry("1")).expect("ending twice is no error");
        assert_eq!(scratch.0.lock().expect("the lock").entries().expect("read"), []);
    }

    #[test]
    fn an_entry_whose_processes_are_gone_is_swept() {
        let scratch = Scratch::new("swept");
        let mut dead = entry("1");
        dead.owner.started_ticks += 1;
        let locked = scratch.0.lock().expect("the lock");
        locked.insert(&dead).expect("inserted");
        locked.insert(&entry("2")).expect("inserted");
        drop(locked);
        let left = scratch.0.lock_swept().expect("the lock").entries().expect("read");
        assert_eq!(left, [entry("2")]);
    }

    #[test]
    fn a_file_that_is_no_entry_is_named_and_never_acted_upon() {
        let scratch = Scratch::new("foreign");
        let path = scratch.0.directory().join("1.json");
        fs::write(&path, "{}").expect("a file");
        let error = scratch.0.lock_swept().expect_err("no entry");
        assert!(matches!(error, HostError::ForeignEntry { .. }), "{error}");
        let mut other = entry("1");
        other.id = "2".into();
        fs::write(&path, serde_json::to_vec(&other).expect("JSON")).expect("a file");
        let error = scratch.0.lock_swept().expect_err("another's name");
        assert!(error.to_string().contains("another name"), "{error}");
    }

    #[test]
    fn what_nothing_enforces_is_not_counted() {
        let mut granted = entry("1");
        assert_eq!(granted.claim(), None);
        granted.enforced = vec!["quota".into()];
        assert_eq!(granted.claim().expect("a claim").budget, Nanos::from_millis(20));
    }
}
