//! Rows in the order in which a table has them: page by page.

use std::ops::Range;

use pgrx::pg_sys;

use super::scan::{Key, scan_keys};
use super::table::{Row, Table};

/// No row of a page has a higher number.
const LAST: u16 = u16::MAX;

impl Table {
    /// How many pages it has.
    pub fn pages(&self) -> u32 {
        // SAFETY: the relation is open.
        unsafe { pg_sys::RelationGetNumberOfBlocksInFork(self.relation(), pg_sys::ForkNumber::MAIN_FORKNUM) }
    }

    /// Rows on `pages` that meet `key`, a condition on a column of the table, until `take` says false. Read past the
    /// shared buffers' other contents where the table is large.
    pub fn each_on_pages(&self, pages: Range<u32>, key: Key, mut take: impl FnMut(Row) -> bool) {
        use pg_sys::ScanOptions::{SO_ALLOW_PAGEMODE, SO_ALLOW_STRAT, SO_TYPE_TIDRANGESCAN};
        let place = |block: u32, offset| pg_sys::ItemPointerData {
            ip_blkid: pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 },
            ip_posid: offset,
        };
        if pages.is_empty() {
            return;
        }
        let (mut first, mut last) = (place(pages.start, 1), place(pages.end - 1, LAST));
        let flags = SO_TYPE_TIDRANGESCAN | SO_ALLOW_STRAT | SO_ALLOW_PAGEMODE;
        let mut entries = scan_keys(&[key]);
        // SAFETY: the table is a heap, and open; scan and slot are ended here, the snapshot let go after them. An error on
        // its way out leaves all three to the transaction's resource owner. Rows are copied.
        unsafe {
            let snapshot = pg_sys::RegisterSnapshot(pg_sys::GetTransactionSnapshot());
            let slot = pg_sys::table_slot_create(self.relation(), std::ptr::null_mut());
            let nothing = std::ptr::null_mut();
            let scan =
                pg_sys::heap_beginscan(self.relation(), snapshot, 1, entries.as_mut_ptr(), nothing, flags);
            pg_sys::heap_set_tidrange(scan, &mut first, &mut last);
            let forward = pg_sys::ScanDirection::ForwardScanDirection;
            while pg_sys::heap_getnextslot_tidrange(scan, forward, slot) && take(Row::copied(self, slot)) {}
            pg_sys::ExecDropSingleTupleTableSlot(slot);
            pg_sys::heap_endscan(scan);
            pg_sys::UnregisterSnapshot(snapshot);
        }
    }
}
