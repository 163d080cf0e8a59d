//! The servers: two directories, their znodes, and the sessions that live.

use curator_locks::{
    CreateMode, ErrorCode, Stat,
    unversioned::{EventType, Request, Response},
};

/// The directories, by number: that of the lock, and that of a semaphore's queue.
pub const DIRECTORIES: [&str; 2] = ["/main", "/must_be_empty"];

pub type Answer = Result<Response, ErrorCode>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Znode {
    pub name: String,
    pub czxid: i64,
    /// The session that it ends with, or 0.
    pub owner: i64,
    pub data: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Directory {
    pub znodes: Vec<Znode>,
    /// How many were created in it, which is the number of the next.
    created: u32,
    /// The transaction that created the last one.
    last: i64,
}

/// From one create to the next: in between are the deletes.
const CREATES: i64 = 1000;

impl Directory {
    /// The transaction of the last change.
    fn changed(&self) -> i64 {
        let standing = i64::try_from(self.znodes.len()).unwrap_or(0);
        self.last + i64::from(self.created) - standing
    }
}

/// What a server knows of the directories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Tree([Option<Directory>; 2]);

/// One change of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    Made(usize),
    Removed(usize),
    Created(usize, Znode),
    Deleted(usize, String),
    /// Other data, as of one who asks for the lock to be given back. No contender reads them.
    Touched(usize, String),
}

/// The leader, whose word counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Server {
    pub tree: Tree,
    zxid: i64,
    /// Those that live.
    pub sessions: Vec<i64>,
}

impl Tree {
    pub fn directory(&self, number: usize) -> Option<&Directory> {
        self.0.get(number)?.as_ref()
    }

    pub fn find(&self, number: usize, name: &str) -> Option<&Znode> {
        self.directory(number)?.znodes.iter().find(|znode| znode.name == name)
    }

    /// Whether the znode that this transaction created is there.
    pub fn stands(&self, czxid: i64) -> bool {
        self.znodes().any(|(_, znode)| znode.czxid == czxid)
    }

    pub fn znodes(&self) -> impl Iterator<Item = (usize, &Znode)> {
        let numbered = self.0.iter().enumerate();
        numbered.flat_map(|(number, directory)| {
            directory.iter().flat_map(move |all| all.znodes.iter().map(move |znode| (number, znode)))
        })
    }

    /// Whether there is something at the path.
    pub fn has(&self, path: &str) -> bool {
        match split(path) {
            Some((number, Some(name))) => self.find(number, name).is_some(),
            Some((number, None)) => self.directory(number).is_some(),
            None => false,
        }
    }

    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Made(number) => self.0[*number] = Some(Directory::default()),
            Change::Removed(number) => self.0[*number] = None,
            Change::Created(number, znode) => {
                if let Some(directory) = &mut self.0[*number] {
                    directory.created += 1;
                    directory.last = znode.czxid;
                    directory.znodes.push(znode.clone());
                }
            }
            Change::Deleted(number, name) => {
                if let Some(directory) = &mut self.0[*number] {
                    directory.znodes.retain(|znode| znode.name != *name);
                }
            }
            Change::Touched(..) => {}
        }
    }

    /// Answers what changes nothing.
    pub fn read(&self, request: &Request) -> Answer {
        match request {
            Request::GetChildren { path, with_stat, .. } => {
                let directory = split(path).and_then(|(number, _)| self.directory(number)).ok_or(ErrorCode::NoNode)?;
                let names = directory.znodes.iter().map(|znode| znode.name.clone()).collect();
                let stat = with_stat.then(|| Stat { pzxid: directory.changed(), ..Stat::default() });
                Ok(Response::Children { names, stat })
            }
            Request::GetData { path, .. } => {
                let znode = self.znode_at(path)?;
                Ok(Response::Data { data: znode.data.clone(), stat: stat_of(znode) })
            }
            Request::Exists { path, .. } => match split(path) {
                Some((number, None)) if self.directory(number).is_some() => Ok(Response::Stat(Stat::default())),
                _ => Ok(Response::Stat(stat_of(self.znode_at(path)?))),
            },
            _ => Ok(Response::Done),
        }
    }

    fn znode_at(&self, path: &str) -> Result<&Znode, ErrorCode> {
        let (number, name) = split(path).ok_or(ErrorCode::NoNode)?;
        self.find(number, name.ok_or(ErrorCode::NoNode)?).ok_or(ErrorCode::NoNode)
    }
}

impl Server {
    pub fn lives(&self, session: i64) -> bool {
        self.sessions.contains(&session)
    }

    fn change(&mut self, change: Change, changes: &mut Vec<Change>) {
        self.tree.apply(&change);
        changes.push(change);
    }

    /// Carries out a request of a live session.
    pub fn serve(&mut self, session: i64, request: &Request, changes: &mut Vec<Change>) -> Answer {
        match request {
            Request::Create { path, data, mode, .. } => self.create(session, path, data, *mode, changes),
            Request::Delete { path, .. } => self.remove(path, changes),
            Request::Multi(steps) => self.all_or_nothing(session, steps, changes),
            Request::Sync { path } => Ok(Response::Synced { path: path.clone() }),
            _ => self.tree.read(request),
        }
    }

    /// The answer of the last step, or the error of the one that fails.
    fn all_or_nothing(&mut self, session: i64, steps: &[Request], changes: &mut Vec<Change>) -> Answer {
        let (before, mut made) = (self.clone(), Vec::new());
        let mut answer = Ok(Response::Done);
        for step in steps {
            answer = self.serve(session, step, &mut made);
            if answer.is_err() {
                *self = before;
                return answer;
            }
        }
        changes.append(&mut made);
        answer
    }

    /// Deletes a znode, or a directory in which nothing is.
    fn remove(&mut self, path: &str, changes: &mut Vec<Change>) -> Answer {
        let (number, name) = split(path).ok_or(ErrorCode::NoNode)?;
        let change = match name {
            Some(_) => Change::Deleted(number, self.tree.znode_at(path)?.name.clone()),
            None if self.tree.directory(number).ok_or(ErrorCode::NoNode)?.znodes.is_empty() => Change::Removed(number),
            None => return Err(ErrorCode::NotEmpty),
        };
        self.change(change, changes);
        Ok(Response::Done)
    }

    fn create(&mut self, session: i64, path: &str, data: &[u8], mode: CreateMode, changes: &mut Vec<Change>) -> Answer {
        let (number, name) = split(path).ok_or(ErrorCode::NoNode)?;
        let Some(name) = name else {
            if self.tree.directory(number).is_some() {
                return Err(ErrorCode::NodeExists);
            }
            self.change(Change::Made(number), changes);
            return Ok(Response::Created { path: path.to_owned(), czxid: 0 });
        };
        let directory = self.tree.directory(number).ok_or(ErrorCode::NoNode)?;
        let name = if mode.is_sequential() { format!("{name}{:010}", directory.created) } else { name.to_owned() };
        if self.tree.find(number, &name).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        self.zxid += CREATES;
        let owner = if mode.is_ephemeral() { session } else { 0 };
        let znode = Znode { name, czxid: self.zxid, owner, data: data.to_vec() };
        let path = format!("{}/{}", DIRECTORIES[number], znode.name);
        self.change(Change::Created(number, znode), changes);
        Ok(Response::Created { path, czxid: self.zxid })
    }

    pub fn delete(&mut self, number: usize, name: &str, changes: &mut Vec<Change>) {
        if self.tree.find(number, name).is_some() {
            self.change(Change::Deleted(number, name.to_owned()), changes);
        }
    }

    /// Whether the server may remove the directory, a container that has had children.
    pub fn can_sweep(&self, number: usize) -> bool {
        self.tree.directory(number).is_some_and(|directory| directory.created > 0 && directory.znodes.is_empty())
    }

    pub fn sweep(&mut self, number: usize, changes: &mut Vec<Change>) {
        self.change(Change::Removed(number), changes);
    }

    pub fn expire(&mut self, session: i64, changes: &mut Vec<Change>) {
        self.sessions.retain(|lives| *lives != session);
        let of_session =
            |(number, znode): (usize, &Znode)| (znode.owner == session).then(|| (number, znode.name.clone()));
        let gone: Vec<_> = self.tree.znodes().filter_map(of_session).collect();
        for (number, name) in gone {
            self.delete(number, &name, changes);
        }
    }
}

impl Change {
    /// What it reports to a watch of this kind on this path, which it uses up.
    pub fn reports(&self, path: &str, is_on_children: bool) -> Option<EventType> {
        let (at, name) = split(path)?;
        match (self, name) {
            (Change::Removed(number), None) if at == *number => Some(EventType::NodeDeleted),
            (Change::Created(number, _) | Change::Deleted(number, _), None) if at == *number && is_on_children => {
                Some(EventType::NodeChildrenChanged)
            }
            (Change::Deleted(number, gone), Some(name)) if at == *number && gone == name && !is_on_children => {
                Some(EventType::NodeDeleted)
            }
            (Change::Touched(number, touched), Some(name)) if at == *number && touched == name && !is_on_children => {
                Some(EventType::NodeDataChanged)
            }
            _ => None,
        }
    }
}

/// The number of the directory, and the name in it.
pub fn split(path: &str) -> Option<(usize, Option<&str>)> {
    let number = DIRECTORIES.iter().position(|directory| path.starts_with(directory))?;
    let name = path.get(DIRECTORIES[number].len()..)?.strip_prefix('/');
    Some((number, name))
}

pub fn number_of(path: &str) -> usize {
    split(path).map_or(0, |(number, _)| number)
}

pub fn changes_nothing(request: &Request) -> bool {
    matches!(request, Request::GetChildren { .. } | Request::GetData { .. } | Request::Exists { .. })
}

fn stat_of(znode: &Znode) -> Stat {
    Stat { czxid: znode.czxid, ephemeral_owner: znode.owner, ..Stat::default() }
}
