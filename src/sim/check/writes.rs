//! Guarded writes reach the servers while their znode is there, and so in the order of their tokens, whatever administrators
//! delete.

use super::{
    Verdict,
    history::{History, Write},
};

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for write in &history.writes {
        let gone = history.facts.gone.get(&write.znode);
        if let Some((_, gone)) = gone.filter(|(_, gone)| write.zxid > *gone) {
            let what = format!("{write:?}, whose znode went by {gone:#x}");
            verdict.broken("a guarded write without a znode", write.at, what);
        }
    }
    for place in 0..history.places.len() {
        let mut writes: Vec<&Write> = history.writes.iter().filter(|write| write.place == place).collect();
        writes.sort_by_key(|write| write.zxid);
        for (earlier, later) in writes.iter().zip(writes.iter().skip(1)) {
            if later.token < earlier.token {
                let what = format!("{later:?} after {earlier:?}");
                verdict.broken("a guarded write after the next holder's", later.at, what);
            }
        }
    }
}
