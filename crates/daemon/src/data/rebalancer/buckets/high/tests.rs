use super::*;

const ALL: usize = BUCKETS as usize;

fn moved(table: &BucketTable, changes: &[Change]) -> BucketTable {
    let mut table = *table;
    for change in changes {
        let worker = &mut table[usize::from(change.bucket)];
        assert_eq!(*worker, change.from, "it is where it is said to be");
        *worker = change.to;
    }
    table
}

fn is_gathered(table: &BucketTable) -> bool {
    (0..BUCKETS).all(|bucket| {
        table[usize::from(bucket)] == table[usize::from(LOW_BUCKETS + group_of(bucket))]
    })
}

#[test]
fn bucket_gathering_one_worker_per_group_balanced() {
    for workers in 1..=7 {
        let table: BucketTable =
            std::array::from_fn(|bucket| u8::try_from(bucket % workers).unwrap());
        let changes = gathering(&table, |_| true).unwrap();
        assert!(is_gathered(&moved(&table, &changes)));
        assert_eq!(changes.is_empty(), workers == 1);
        // Each worker keeps its share.
        let after = moved(&table, &changes);
        for worker in 0..workers {
            let count = after.iter().filter(|at| usize::from(**at) == worker).count();
            assert!(count * workers * 2 > ALL, "worker {worker} of {workers}: {count}");
        }
        // The remaining work shrinks with every executed part.
        let some: Vec<Change> = changes.iter().step_by(3).copied().collect();
        let rest = gathering(&moved(&table, &some), |_| true).unwrap();
        assert_eq!(rest.len(), changes.len() - some.len());
    }
}

#[test]
fn others_come_to_a_bucket_that_cannot_go() {
    let mut table: BucketTable = [0; ALL];
    let (stays, other) = (5, 6);
    table[usize::from(stays)] = 1;
    let changes = gathering(&table, |bucket| bucket != stays).unwrap();
    assert_eq!(changes.len(), 4);
    assert!(changes.iter().all(|c| c.to == 1 && group_of(c.bucket) == group_of(stays)));
    // Two buckets may not leave: on one worker, and on two.
    table[usize::from(other)] = 1;
    assert!(gathering(&table, |bucket| bucket != stays && bucket != other).is_some());
    table[usize::from(other)] = 2;
    assert_eq!(gathering(&table, |bucket| bucket != stays && bucket != other), None);
    assert!(gathering(&table, |bucket| bucket != stays).is_some(), "one of them can go now");
}
