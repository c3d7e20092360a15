# The kernel's capabilities. Each has an enum of its methods, whose number is a request's `method_id`, and structs for
# parameters and results where a method has any: one unframed segment each. (They are structs and not Cap'n Proto
# interfaces because the code generated for those needs a hosted program.)
#
# `Console` and endpoint messages are bytes as they are: what they carry is not the kernel's to read. `note` writes its bytes
# to the debug console as one frame for the host (`core/abi/src/frame.rs`).
@0xb1f3a0c2d4e59687;

enum ConsoleMethod { write @0; read @1; note @2; }

enum TimerMethod {
  now   @0;   # -> TimerNow
  sleep @1;   # TimerSleep; refused beyond the process's quota of sleeps
}
struct TimerNow   { timeNs @0 :UInt64; }
struct TimerSleep { deadlineNs @0 :UInt64; }

# The serving side of an endpoint, beside its operations. One that is closed takes no calls, and those that it has end as if the
# server had: one call of `close` ends a few, and its completion's result says how many, 0 when there are none left. `open` lets it take
# calls again.
enum EndpointMethod { close @0; open @1; }

enum LatencyClass { interactive @0; normal @1; batch @2; }

# Makes threads of the calling process.
enum ThreadSpawnerMethod { create @0; }   # ThreadCreate -> Handle
struct ThreadCreate {
  entry        @0 :UInt64;
  argument     @1 :UInt64;
  weight       @2 :UInt32 = 64;
  latencyClass @3 :LatencyClass = normal;
  # Service asked for at a time; 0 leaves that to the class.
  requestNs    @4 :UInt64;
  # Bit n for CPU n; 0 for all.
  cpus         @5 :UInt64;
  # A SchedulingPolicy capability, without which a thread gets at most the weight of its maker, and is served no sooner.
  policy       @6 :UInt32;
}
# `slot` is the thread's or process's place in the kernel's tables: what the flight record calls it. It is no authority.
struct Handle { cap @0 :UInt32; slot @1 :UInt32; }

# What a thread may do to itself.
enum ThreadControlMethod { setFsBase @0; yield @1; }   # SetFsBase; nothing
struct SetFsBase { base @0 :UInt64; }

# `join` takes a Deadline; the completion's result is the thread's exit code, as a signed number: negative if it was killed.
# `kill` ends the thread the next time that it would go on in user mode.
enum ThreadHandleMethod { join @0; detach @1; kill @2; }
# A deadline of 0 is none.
struct Deadline { deadlineNs @0 :UInt64; }

# Waiting on words of the calling process's memory.
enum ParkSpaceMethod {
  wait @0;   # ParkWait; the completion's result is 0 when woken, 1 if the word was not `expected`
  wake @1;   # ParkWake; the completion's result is the number of waiters woken, 32 at most
}
struct ParkWait { address @0 :UInt64; expected @1 :UInt32; deadlineNs @2 :UInt64; }
struct ParkWake { address @0 :UInt64; count @1 :UInt32; }

# Starts programs of the boot image, with copies of capabilities of the caller.
enum ProcessSpawnerMethod { spawn @0; }   # ProcessSpawn -> Handle
struct Grant { name @0 :Text; cap @1 :UInt32; }
struct ProcessSpawn { program @0 :Text; arguments @1 :Text; grants @2 :List(Grant); }
# `wait` is as `join`.
enum ProcessHandleMethod { wait @0; kill @1; detach @2; }

# The calling process's address space, by whole pages.
enum VirtualMemoryMethod {
  map     @0;   # MemoryRange -> MemoryRange; somewhere if `address` is 0
  unmap   @1;   # MemoryRange; completes when no CPU has the old translations any more
  protect @2;   # MemoryRange; likewise
  createObject @3;   # MemoryRange (pages) -> Handle: memory that can be granted to others
  mapObject    @4;   # MapObject -> MemoryRange
  unmapObject  @5;   # MemoryRange (address); as unmap, for the whole object
}
struct MapObject { cap @0 :UInt32; access @1 :Access; }
# A MemoryObject has no methods of its own: it is mapped through the address space of whoever has it.
enum Access { read @0; write @1; execute @2; }
struct MemoryRange { address @0 :UInt64; pages @1 :UInt32; access @2 :Access; }

# The calling thread's own weight and latency class, and its account.
enum SchedulingPolicyMethod {
  setWeight       @0;   # SetWeight
  setLatencyClass @1;   # SetLatencyClass
  snapshot        @2;   # -> Snapshot
  setWeightOf     @3;   # SetWeightOf: of another thread, by its handle; refused if that has ended
}
struct SetWeight       { weight @0 :UInt64; }
struct SetWeightOf     { thread @0 :UInt32; weight @1 :UInt64; }
struct SetLatencyClass { latencyClass @0 :LatencyClass; }
struct Snapshot {
  version @0 :UInt16;
  weight @1 :UInt16;
  latencyClass @2 :LatencyClass;
  runtimeNs @3 :UInt64;
  virtualRuntimeNs @4 :UInt64;
  lastStartedNs @5 :UInt64;
  voluntaryBlocks @6 :UInt64;
  preemptions @7 :UInt64;
  runnableAccumulatedNs @8 :UInt64;
}

# What the machine is and how it is doing. Reads only.
enum SystemInfoMethod {
  ringVersions @0;   # -> RingVersions
  memory       @1;   # -> Memory
  objects      @2;   # -> Objects
  cpu          @3;   # CpuNumber -> Cpu
  thread       @4;   # SlotNumber -> ThreadInfo; refused if nobody lives there
  process      @5;   # SlotNumber -> ProcessInfo; likewise
  beginCase    @6;   # CaseName -> Counts of the case that ends; refused but by a kernel that measures
  telemetry    @7;   # CpuNumber -> CpuTelemetry
}
struct CaseName { name @0 :Text; }
struct Counts { counts @0 :List(UInt64); }   # by Counter
# What a kernel that measures counts. Diagnostic: no decision reads any of it.
enum Counter {
  decisions @0;           # times that a core was asked who runs
  candidates @1;          # threads queued then, in all
  runs @2;                # decisions for a thread
  idles @3;               # decisions for none
  directSwitches @4;      # switches to the other side of a call, without asking
  switches @5;            # times that another thread was installed
  stealsTried @6;
  stealsMade @7;
  coreLocks @8;           # times that a core was locked
  coreLocksContended @9;  # of those, when somebody else had it
  serialBytes @10;
  timersInUserMode @11;
  timersInIdle @12;
  samplesLost @13;        # user instructions that there was no room for
  tableLoads @14;         # page tables loaded: CR3 written
  flushes @15;            # translations forgotten for others, or for oneself
  shootdowns @16;         # changes of page tables that others were told of
  wakeScans @17;          # looks for a CPU to tell of a thread that is ready
  idleEligible @18;       # idle CPUs that it might run on, found by them
  cpusTargeted @19;       # CPUs that one tried to tell
  ipisSent @20;
  ipisPending @21;        # not sent, since one was under way
  notReady @22;           # not sent, since the CPU does not schedule yet
  noLapic @23;            # not sent, since there is no such CPU
  sendFailures @24;       # sent, and the local APIC says that it failed
  # Counts of the time stamp counter. Each is in one of the first five at most.
  ringCycles @25;         # requests were read from rings, and completions written
  capnpCycles @26;        # parameters were read, and results written
  methodCycles @27;       # methods did their work
  schedulerCycles @28;    # cores were told of events, or decided
  lockWaitCycles @29;     # until a core was locked
  lockHoldCycles @30;     # cores were locked
}
struct SlotNumber { slot @0 :UInt32; }
enum ThreadState { running @0; ready @1; asleep @2; moving @3; }
struct ThreadInfo {
  process @0 :UInt32;
  cpu @1 :UInt32;
  state @2 :ThreadState;
  weight @3 :UInt16;
  # CPU time up to when it was last charged, and when the interval began that has not been charged, if it runs.
  runtimeNs @4 :UInt64;
  lastStartedNs @5 :UInt64;
}
struct ProcessInfo { name @0 :Text; threads @1 :UInt32; pages @2 :UInt64; }
struct RingVersions { oldest @0 :UInt32; newest @1 :UInt32; }
struct Memory { freeFrames @0 :UInt64; totalFrames @1 :UInt64; heapUsed @2 :UInt64; hardPathAllocations @3 :UInt64; }
struct Objects {
  cpus @0 :UInt32;
  threads @1 :UInt32;
  processes @2 :UInt32;
  pendingWaits @3 :UInt32;
  # Messages of devices, since boot.
  deviceInterrupts @4 :UInt64;
}
struct CpuNumber { cpu @0 :UInt32; }
struct Cpu {
  timerInterrupts @0 :UInt64;
  ticks @1 :UInt64;
  ticksSuppressed @2 :UInt64;
  reschedulesReceived @3 :UInt64;
  reschedulesSent @4 :UInt64;
  reschedulesPending @5 :UInt64;
  steals @6 :UInt64;
  handoffs @7 :UInt64;
  handoffsQueued @8 :UInt64;
  idleNs @9 :UInt64;
  busyNs @10 :UInt64;
  timeouts @11 :UInt64;
  queueDepthMax @12 :UInt64;
  nohzEnterIdle @13 :UInt64;
  deadlineMisses @14 :UInt64;
  shootdowns @15 :UInt64;
  queued @16 :UInt64;
}

# The counters of one CPU, by the names that reports have.
struct CpuTelemetry {
  schedulerTickCount @0 :UInt64;
  ticksSuppressedIdle @1 :UInt64;
  ticksSuppressedLease @2 :UInt64;
  nohzEnterIdle @3 :UInt64;
  nohzEnterLease @4 :List(UInt64);   # by kind
  nohzExit @5 :List(UInt64);         # by reason
  oneshotDeadlineMissCount @6 :UInt64;
  # Requests that were not begun because they were late.
  deadlineExpiredCount @7 :UInt64;
  budgetExhaustedCount @8 :UInt64;
  realtimeOverrunCount @9 :UInt64;
  donationDepthMax @10 :UInt64;
  # How long pollers of rings have run there, and how often they fell asleep.
  sqpollBusyNs @11 :UInt64;
  sqpollSleepCount @12 :UInt64;
  # Threads and passes of the machine's own work that others have taken off it while it was leased.
  housekeepingOffloadCount @13 :UInt64;
}

# CPU time that its holder may spend: so much in each period, kept by the kernel. The capability names one context by number and
# generation; a context that is gone is told as such, and a thread that had it goes on as best effort.
enum SchedulingContextMethod {
  create            @0;   # ContextCreate -> Handle: another one, which grants no more than this one
  info              @1;   # -> ContextInfo
  bindCallerThread  @2;   # the calling thread runs on it from now on; the thread must be on the context's CPU
  unbind            @3;   # the calling thread gives it up
  revoke            @4;   # it is gone, wherever it is
  drainNotifications @5;  # -> ContextNotices: the two cells, which are empty then
  wait              @6;   # Deadline; until there is something to drain, or it is gone
  release           @7;   # the capability is given up, and the calling thread's binding if it is to this context
  adjust            @8;   # ContextAdjust: it grants something else, if its ledger allows that and every promised deadline holds
}
# A thread that uses a context up waits, or goes on as best effort; with `fault` its handler is told, and without a handler the thread
# ends; with `shutdown` the context's island ends, and without an island the context.
enum OverrunPolicy { throttle @0; notify @1; fault @2; shutdown @3; }
struct ContextAdjust {
  budgetNs   @0 :UInt64;
  periodNs   @1 :UInt64;
  # 0 for the period.
  deadlineNs @2 :UInt64;
}
struct ContextCreate {
  budgetNs   @0 :UInt64;
  periodNs   @1 :UInt64;
  # 0 for the period.
  deadlineNs @2 :UInt64;
  priority   @3 :UInt16;
  criticality @4 :UInt8;
  overrun    @5 :OverrunPolicy;
  # Bit n for CPU n; 0 for its creator's. Its time is set aside on the first of them on which every deadline holds.
  cpus       @6 :UInt64;
  # How often it may be lent on from call to call; 0 for as often as its creator's.
  depth      @7 :UInt8;
}
struct ContextInfo {
  id @0 :UInt32;
  generation @1 :UInt32;
  budgetNs @2 :UInt64;
  periodNs @3 :UInt64;
  deadlineNs @4 :UInt64;
  remainingNs @5 :UInt64;
  usedNs @6 :UInt64;
  depletions @7 :UInt64;
  misses @8 :UInt64;
  overshootMaxNs @9 :UInt64;
  # Where its time is set aside.
  cpu @10 :UInt32;
  # A thread holds it, whose time is charged to it.
  budgetEnforced @11 :Bool;
  bound @12 :Bool;
  # The capability is of an old generation: it can be used for nothing but this, and nothing remains.
  stale @13 :Bool;
  # It is on loan: another thread serves a call on it.
  lent @14 :Bool;
  # What of `usedNs` was used on loan.
  donatedNs @15 :UInt64;
}
enum DrainStatus { ok @0; revoked @1; staleGeneration @2; }
enum ContextEnd { none @0; explicitRevoke @1; logout @2; ownerExit @3; islandEnd @4; }
struct ContextNotices {
  status @0 :DrainStatus;
  reason @1 :ContextEnd;
  depleted @2 :ContextNotice;
  deadline @3 :ContextNotice;
}
# `coalesced` of 0: nothing has happened since the last drain.
struct ContextNotice { sequence @0 :UInt32; coalesced @1 :UInt32; remainingNs @2 :UInt64; nextNs @3 :UInt64; donated @4 :Bool; }

# A login session: processes that are started in it belong to it, and so do the contexts that they are granted. When it ends, its
# contexts end; one that is on loan ends when it comes back. Where the process is in none, a thread can be in one.
enum UserSessionMethod {
  info   @0;   # -> SessionInfo
  logout @1;   # -> SessionLogout: the session ends, once
  enter  @2;   # -> nothing: the calling thread is in it from now on, with the contexts that it is bound to and the leases of its CPUs
}
struct SessionInfo { id @0 :UInt64; live @1 :Bool; }
struct SessionLogout { staleMarked @0 :UInt32; donationInflightSkipped @1 :UInt32; }

# The authority to lease CPUs.
enum CpuIsolationMethod { grant @0; }   # LeaseGrant -> LeaseHandle; the lease belongs to the calling process and ends with it
enum LeaseMode { compute @0; kernelSqpoll @1; userspacePoller @2; kernelWorker @3; deviceOwner @4; }
enum NamedRing { none @0; callerThread @1; }
struct LeaseGrant {
  # The CPUs, and those that may not do the housekeeping for them: CPU n is bit n mod 8 of byte n div 8, and the last byte is not 0.
  cpus                   @0 :Data;
  housekeepingExclusions @1 :Data;
  mode                   @2 :LeaseMode;
  ring                   @3 :NamedRing;
  # Above 0.
  maxRevocationLatencyNs @4 :UInt64;
  # 0 for until it is taken back.
  lifetimeNs             @5 :UInt64;
  # The thread that gets the CPUs to itself: a ThreadHandle; 0 for the calling thread.
  thread                 @6 :UInt32;
  # Who pays: a SchedulingContext; 0 for the ledger.
  account                @7 :UInt32;
  # Where its end is told: an endpoint, by serving end; 0 for nowhere.
  revokeEndpoint         @8 :UInt32;
  # A lease that it takes the place of; 0 for none.
  replaces               @9 :UInt32;
  # The CPU does without a tick whenever that can be proved.
  tickless               @10 :Bool;
  allowIrqs              @11 :Bool;
  allowBusySpin          @12 :Bool;
  # How long a poller that may spin looks for more before it sleeps; 0 for as long as one may, which is 2 ms.
  idleSpinNs             @13 :UInt64;
}
struct LeaseHandle { cap @0 :UInt32; id @1 :UInt64; generation @2 :UInt64; }

# CPUs that a thread has to itself. The capability names one lease by number and generation; a lease that has ended is told as such.
enum CpuIsolationLeaseMethod {
  info      @0;   # -> LeaseInfo
  preflight @1;   # -> LeasePreflight: what stands in the way of a CPU without a tick; changes nothing
  revoke    @2;   # it ends; its owner can still ask why
  release   @3;   # it ends, the capability is given up, and what is kept of it is forgotten
  activate  @4;   # asks its CPU to do without a tick; refused as busy if an earlier request is still to be decided
}
enum LeaseEnd {
  live @0; revoked @1; released @2; expired @3; processExit @4; serviceReplaced @5; logout @6; superseded @7;
  # Nothing is kept of it.
  gone @8;
}
struct LeaseInfo {
  id @0 :UInt64;
  generation @1 :UInt64;
  end @2 :LeaseEnd;
  mode @3 :LeaseMode;
  cpus @4 :UInt64;
  housekeepingExclusions @5 :UInt64;
  maxRevocationLatencyNs @6 :UInt64;
  # 0 for never.
  expiresAtNs @7 :UInt64;
  # The number of the context that pays; 0 for the ledger.
  context @8 :UInt32;
  # The slot of the thread that has the CPUs to itself.
  lessee @9 :UInt32;
  # Its CPU is without a tick since then; 0 if it is not.
  ticklessSinceNs @10 :UInt64;
  # Why its CPU kept ticking when it was last asked; empty if nothing stood in the way.
  obstacle @11 :Text;
  # Its first CPU, since boot.
  ticks @12 :UInt64;
  ticksSuppressed @13 :UInt64;
  timerInterrupts @14 :UInt64;
  activations @15 :UInt64;
  # How often the CPU left a tickless state, by NohzExit.
  exits @16 :List(UInt32);
}
enum NohzExit {
  dispatch @0; reschedule @1; rollback @2; staleLease @3; leaseExpired @4; targetMismatch @5; secondRunnable @6; directTarget @7;
  siblingWork @8; wentIdle @9; deferredCleanup @10; timerDue @11; ringChanged @12; noOneShot @13; recordCleared @14; notReproved @15;
}
# How each obligation stands, in this order.
enum Obligation {
  leaseLive @0; leaseLifetime @1; leaseMode @2; soleCpu @3; targetCpu @4; remoteShape @5; directTarget @6; soleRunnable @7;
  siblingWork @8; housekeeping @9; deferredCleanup @10; timers @11; workers @12; watchdog @13; networkPolling @14; irqAffinity @15;
  accountingTarget @16; clock @17; sqConsumer @18; busySpin @19; revocationLatency @20; rollback @21; periodicFallback @22;
  oneShot @23;
}
struct LeasePreflight {
  id @0 :UInt64;
  generation @1 :UInt64;
  cpus @2 :UInt64;
  # The CPUs that do the housekeeping for it.
  housekeepers @3 :UInt64;
  # The CPU that was looked at, and how many threads could run there.
  cpu @4 :UInt32;
  runnable @5 :UInt32;
  # Bit n: obligation n is not met.
  blocked @6 :UInt32;
  # How each is met, or what stands in the way.
  labels @7 :List(Text);
}
# The revoke endpoint receives a notice: a message with the call number 0, which is not answered, of four words: the id, the
# generation, the LeaseEnd, and when that was, in nanoseconds.
# A device of the PCI bus. The first process that asks for its registers, memory or messages drives it, until that process ends:
# the device is reset then. Others are told `busy`. A device can write any memory that its driver names: the driver is trusted.
enum DeviceMethod {
  info      @0;   # -> DeviceInfo
  config    @1;   # DeviceNumber (register); the completion's result is the word. Programs cannot write configuration space
  memory    @2;   # DeviceNumber (base address) -> DeviceRegisters: a DeviceMemory, which mapObject maps
  createDma @3;   # MemoryRange (pages) -> Handle: a DmaMemory, which mapObject maps
  interrupt @4;   # DeviceNumber (message) -> Handle: an Interrupt
}
struct DeviceInfo { vendor @0 :UInt16; kind @1 :UInt16; interrupts @2 :UInt16; }
struct DeviceNumber { number @0 :UInt32; }
struct DeviceRegisters { cap @0 :UInt32; address @1 :UInt64; bytes @2 :UInt64; }

enum DmaMemoryMethod { address @0; }   # DeviceNumber (page) -> DmaAddress
struct DmaAddress { address @0 :UInt64; }

# `wait` takes a Deadline. It lets one message through, and ends with it; one that came since the last wait ends it at once.
enum InterruptMethod { wait @0; }

# The authority to be the policy service: one process at a time, the last that has started, sets how others are treated, within
# bounds that boot has fixed. All changes of an update are made, or none.
enum PolicyServiceMethod {
  start     @0;   # -> PolicyStatus: the calling process is in charge from now on; what its predecessor has set stands
  heartbeat @1;   # it lives; refused but from the process that is in charge
  submit    @2;   # PolicyUpdate -> PolicyStatus
  status    @3;   # -> PolicyStatus
  stop      @4;   # the calling process is in charge no more, as if it had ended; refused but from the process that is in charge
  # The calling thread is the one that no update changes, and is treated from now on as it is treated now whenever the service is lost.
  # Refused but from the program that the manifest names `recovery`, whose first thread it is until then.
  recover   @5;
}
struct PolicyUpdate {
  # Above the last that was taken, from any process, by at most 2^32.
  epoch   @0 :UInt64;
  # At most 16.
  changes @1 :List(PolicyChange);
}
enum PolicyChangeKind { treat @0; lease @1; endLease @2; profile @3; floor @4; }
struct PolicyChange {
  kind         @0 :PolicyChangeKind;
  latencyClass @1 :LatencyClass = normal;
  # The thread that is treated, by its slot, and its process, by its own: refused if that thread is not there any more.
  slot         @2 :UInt32;
  process      @3 :UInt32;
  weight       @4 :UInt64;
  # The CPU that is leased to the process, and for how long.
  cpu          @5 :UInt32;
  # The lease stays when the service is lost.
  outlives     @6 :Bool;
  lifetimeNs   @7 :UInt64;
}
enum PolicyState { absent @0; alive @1; slow @2; lost @3; }
struct PolicyStatus {
  state @0 :PolicyState;
  # Whether the calling process is the one that is in charge.
  inCharge @1 :Bool;
  instance @2 :UInt32;
  epoch @3 :UInt64;
  taken @4 :UInt64;
  refused @5 :UInt64;
  # CPUs that it has leased, bit by bit, and how many leases of the last update could not be granted.
  leased @6 :UInt64;
  notGranted @7 :UInt32;
  # Why the last update was refused; empty if none was.
  refusal @8 :Text;
  # How often the service was slow since boot, and when it first was.
  slowTimes @9 :UInt32;
  slowAtNs @10 :UInt64;
  # When and why it was lost last.
  lostAtNs @11 :UInt64;
  lost @12 :PolicyLoss;
}
enum PolicyLoss { never @0; silent @1; exited @2; cutOff @3; }

# The authority to have realtime islands admitted, for so much of one CPU as the manifest says.
enum RealtimeIslandsMethod { admit @0; }   # IslandSpec -> IslandHandle; the island belongs to the calling process and ends with it
struct IslandNode {
  budgetNs   @0 :UInt64;
  # 0 for the island's own.
  periodNs   @1 :UInt64;
  deadlineNs @2 :UInt64;
  # Bit n for CPU n; 0 for all of the island's.
  cpus       @3 :UInt64;
}
struct IslandSpec {
  periodNs    @0 :UInt64;
  # 0 for the period.
  deadlineNs  @1 :UInt64;
  criticality @2 :UInt8;
  # Bit n for CPU n; 0 for all.
  cpus        @3 :UInt64;
  overrun     @4 :OverrunPolicy;
  # Its nodes run one after the other, on one CPU.
  chain       @5 :Bool;
  nodes       @6 :List(IslandNode);
  # Its memory: MemoryObjects, whose pages it keeps and its process pays for once more.
  memory      @7 :List(UInt32);
  # Endpoints that its nodes call, which must lend the caller's time.
  endpoints   @8 :List(UInt32);
  # Where overruns, shutdown, adjustment and end are told: an endpoint, by serving end; 0 for nowhere.
  notify      @9 :UInt32;
  # What its author knows of its nodes, and what refuses it: they wait for locks that may be held for any time, for servers on their
  # own time, or use memory that does not stay.
  unboundedLocks @10 :Bool;
  blockingCalls  @11 :Bool;
  normalMemory   @12 :Bool;
}
struct IslandHandle { cap @0 :UInt32; id @1 :UInt32; generation @2 :UInt32; }

# A realtime island: all of it was admitted, and all of it is set aside. An adjustment makes other names of it stale.
enum RealtimeIslandMethod {
  info             @0;   # -> IslandInfo
  bindCallerThread @1;   # NodeNumber: the calling thread, which is on the node's CPU, runs on the node's budget
  adjust           @2;   # IslandSpec with as many nodes; what it keeps and calls stays as it is
  leave            @3;   # it ends, and everything is given back
  serve            @4;   # NodeEndpoint: threads of the process that serve calls there without a context do so on the node's budget
}
struct NodeNumber { node @0 :UInt32; }
# The endpoint is named by its serving end. One that serves on another context, which still is, is refused as busy.
struct NodeEndpoint { node @0 :UInt32; endpoint @1 :UInt32; }
struct IslandInfo {
  # The name is of an island that there is. One that has left lately still says what its nodes have used.
  live       @0 :Bool;
  # It is to end.
  stopping   @1 :Bool;
  generation @2 :UInt32;
  # By node: the CPU where its time is set aside, and the number of its context.
  cpus       @3 :List(UInt32);
  contexts   @4 :List(UInt32);
  # Pages that it keeps, ring entries that it has.
  pages       @5 :UInt64;
  ringEntries @6 :UInt32;
  # By node: what was used, of that on loan, how often it was used up, how often it was late, and the furthest that it was run past.
  usedNs      @7 :List(UInt64);
  donatedNs   @8 :List(UInt64);
  depletions  @9 :List(UInt32);
  misses      @10 :List(UInt32);
  overshootNs @11 :List(UInt64);
  # When it left, and whether an overrun shut it down; 0 while it is there.
  endedNs     @12 :UInt64;
  shutDown    @13 :Bool;
}
# What is told of an island: its number, one of these, the node if one overran, and when.
enum IslandNotice { overran @0; shuttingDown @1; adjusted @2; left @3; }
