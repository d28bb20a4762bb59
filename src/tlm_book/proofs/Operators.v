(* Operators on sequences, and why a transformer language model never looks ahead.

   Chapter `operators` of the book, checked by Coq. Above each lemma stand the name of its statement in the book and the
   book's proof in words. A sequence of n rows is a list; the rows may be of any type (vectors, tokens). Rows count from 0:
   `nth_error X i` is row i of X, `firstn i X` is X[:i]. No numbers are needed: where the book has an exponential or a
   sum, any function with the one property that the proof uses will do. Nothing is assumed: no axiom, no `Admitted`.
   The book lets an operator end at some height M. That adds nothing here: continue it beyond M in any way. *)

From Coq Require Import List Arith Lia Permutation FinFun.
Import ListNotations.

(* --- Sequences ------------------------------------------------------------------------------------------------------ *)
Lemma same_rows {A} : forall X Y : list A, (forall i, nth_error X i = nth_error Y i) -> X = Y.
Proof.
  induction X as [|x X IH]; intros [|y Y] H; try reflexivity; try (specialize (H 0); discriminate).
  f_equal; [specialize (H 0); now injection H | apply IH; intro i; exact (H (S i))].
Qed.
Lemma row_firstn {A} : forall (X : list A) i m, i < m -> nth_error (firstn m X) i = nth_error X i.
Proof. induction X; intros [|i] [|m] H; cbn; try reflexivity; try lia. apply IHX; lia. Qed.
Lemma firstn_of_firstn {A} (X : list A) i m : i <= m -> firstn i (firstn m X) = firstn i X.
Proof. intro H. rewrite firstn_firstn. now rewrite Nat.min_l. Qed.
Lemma row_table {A} (f : nat -> A) n i : i < n -> nth_error (map f (seq 0 n)) i = Some (f i).
Proof. intro H. now rewrite nth_error_map, (nth_error_nth' _ 0), seq_nth by now rewrite ?seq_length. Qed.

(* map_rows t X has the rows t_i(X[i]). *)
Fixpoint map_rows {A B} (t : nat -> A -> B) (X : list A) : list B :=
  match X with [] => [] | x :: X' => t 0 x :: map_rows (fun i => t (S i)) X' end.
Lemma length_map_rows {A B} : forall X (t : nat -> A -> B), length (map_rows t X) = length X.
Proof. induction X; intro t; cbn; [|rewrite IHX]; reflexivity. Qed.
Lemma row_map_rows {A B} : forall X (t : nat -> A -> B) i, nth_error (map_rows t X) i = option_map (t i) (nth_error X i).
Proof. induction X; intros t [|i]; cbn; try reflexivity. apply (IHX (fun i => t (S i))). Qed.
Lemma firstn_map_rows {A B} : forall X (t : nat -> A -> B) i, firstn i (map_rows t X) = map_rows t (firstn i X).
Proof. induction X; intros t [|i]; cbn; try reflexivity. now rewrite IHX. Qed.
Lemma map_rows_map {A B} : forall X (t : A -> B), map_rows (fun _ => t) X = map t X.
Proof. induction X; intro t; cbn; [|rewrite IHX]; reflexivity. Qed.

(* --- Operators and the four notions ---------------------------------------------------------------------------------- *)
(* W-operation-def. An operator: one map for each height; the height is kept. *)
Record operator (A B : Type) := { run :> list A -> list B; height : forall X, length (run X) = length X }.
Arguments run {A B}. Arguments height {A B}.
(* W-rowwise-def, in its second form: there is one map t with T(X)[i] = t(X[i]). *)
Definition rowwise {A B} (T : operator A B) := exists t, forall X, T X = map t X.
(* T-indexed-rowwise-def: there are maps t_0, t_1, … with T(X)[i] = t_i(X[i]). *)
Definition indexed_rowwise {A B} (T : operator A B) := exists t, forall X, T X = map_rows t X.
(* W-autoregressive-def: T(X[:i]) = T(X)[:i]. *)
Definition autoregressive {A B} (T : operator A B) := forall X i, T (firstn i X) = firstn i (T X).
(* T-equivariant-def: T(ΠX) = Π T(X). Here p is a permutation of 0, …, n−1, and X' has the rows of X in the order p. *)
Definition reorders {A} (p : nat -> nat) (X X' : list A) :=
  length X' = length X /\ forall i, nth_error X' i = nth_error X (p i).
Definition equivariant {A B} (T : operator A B) :=
  forall p X X', FinFun.Injective p -> reorders p X X' -> reorders p (T X) (T X').

Lemma by_rows {A B} (T : operator A B) X m :
  (forall i, i < m -> i < length X -> nth_error (T (firstn m X)) i = nth_error (T X) i) -> T (firstn m X) = firstn m (T X).
Proof.
  intro H. apply same_rows. intro i. pose proof (height T X). pose proof (height T (firstn m X)). pose proof (firstn_length m X).
  destruct (Nat.lt_ge_cases i (length (firstn m X))); [rewrite H, row_firstn by lia; reflexivity|].
  transitivity (@None B); [|symmetry]; apply nth_error_None; rewrite ?firstn_length; lia.
Qed.
(* W-rowwise-def: the two forms say the same. "Given the first, take for t(x) the only row of T of the one-row matrix x.
   Given the second, both sides of the first are t(X[i])." *)
Definition only_row {A B} (T : operator A B) (x : A) : B :=
  match T [x] as Y return length Y = 1 -> B with
  | y :: _ => fun _ => y
  | [] => fun none => match O_S 0 none with end
  end (height T [x]).
Lemma only_row_is {A B} (T : operator A B) x : nth_error (T [x]) 0 = Some (only_row T x).
Proof. unfold only_row. generalize (height T [x]). cbn. destruct (T [x]); [discriminate | reflexivity]. Qed.
Lemma rowwise_forms {A B} (T : operator A B) :
  rowwise T <-> forall X i x, nth_error X i = Some x -> nth_error (T X) i = nth_error (T [x]) 0.
Proof.
  split.
  - intros [t H] X i x row. rewrite !H, nth_error_map, row. reflexivity.
  - intro H. exists (only_row T). intro X. apply same_rows. intro i. rewrite nth_error_map.
    destruct (nth_error X i) as [x|] eqn:row; cbn.
    + now rewrite (H X i x row), only_row_is.
    + apply nth_error_None. rewrite height. now apply nth_error_None.
Qed.

(* W-rowwise-implies-ar. "If T(X)[i] = t(X[i]), take t_i = t … If T(X)[i] = t_i(X[i]), then f_i(x_0, …, x_i) = t_i(x_i) will do." *)
Lemma rowwise_is_indexed {A B} (T : operator A B) : rowwise T -> indexed_rowwise T.
Proof. intros [t H]. exists (fun _ => t). intro X. now rewrite H, map_rows_map. Qed.
Lemma indexed_is_autoregressive {A B} (T : operator A B) : indexed_rowwise T -> autoregressive T.
Proof. intros [t H] X i. now rewrite !H, firstn_map_rows. Qed.
Lemma rowwise_is_autoregressive {A B} (T : operator A B) : rowwise T -> autoregressive T.
Proof. intro H. now apply indexed_is_autoregressive, rowwise_is_indexed. Qed.
Lemma rowwise_is_equivariant {A B} (T : operator A B) : rowwise T -> equivariant T.
Proof.
  intros [t H] p X X' _ [same rows]. split; [now rewrite !height|].
  intro i. now rewrite !H, !nth_error_map, rows.
Qed.

(* T-two-halves. For one row: T(X)[i] = f(X[0], …, X[i]); and in two halves, neither of which reads the other:
   (a) at one height, row i is the same whatever the rows after it are;
   (b) row i stays as it is when so many rows, suitably chosen, are added behind.
   "T(X)[i] is the last row of T(X)[:i+1] = T(X[:i+1])." *)
Definition from_first_rows {A B} (T : operator A B) :=
  exists f : list A -> option B, forall X i, i < length X -> nth_error (T X) i = f (firstn (S i) X).
Definition half_a {A B} (T : operator A B) := forall X X' i,
  length X = length X' -> firstn (S i) X = firstn (S i) X' -> nth_error (T X) i = nth_error (T X') i.
Definition half_b {A B} (T : operator A B) := forall X i k, i < length X ->
  exists Y, length Y = k /\ nth_error (T (X ++ Y)) i = nth_error (T X) i.

Lemma autoregressive_from_first_rows {A B} (T : operator A B) : autoregressive T <-> from_first_rows T.
Proof.
  split.
  - intro H. exists (fun X => nth_error (T X) (length X - 1)). intros X i small.
    rewrite H, row_firstn; rewrite firstn_length; [f_equal|]; lia.
  - intros [f H] X m. apply by_rows. intros i below small.
    rewrite !H, firstn_of_firstn by (rewrite ?firstn_length; lia). reflexivity.
Qed.
Lemma two_halves {A B} (T : operator A B) : autoregressive T <-> half_a T /\ half_b T.
Proof.
  split.
  - intro H. split.
    + intros X X' i _ same. rewrite <- (row_firstn (T X) i (S i)), <- (row_firstn (T X') i (S i)) by lia.
      now rewrite <- !H, same.
    + intros X i k small. destruct X as [|x X]; [cbn in small; lia|].
      exists (repeat x k). split; [apply repeat_length|].
      rewrite <- (row_firstn (T ((x :: X) ++ repeat x k)) i (length (x :: X))), <- H by assumption.
      now rewrite firstn_app, firstn_all, Nat.sub_diag, app_nil_r.
  - intros [a b] X m. apply by_rows. intros i below small. pose proof (firstn_length m X) as n.
    destruct (b (firstn m X) i (length X - length (firstn m X))) as (Y & long & <-); [lia|].
    apply a; [rewrite app_length; lia|].
    rewrite firstn_app, firstn_of_firstn by lia. replace (S i - length (firstn m X)) with 0 by lia. apply app_nil_r.
Qed.

(* T-rowwise-iff. "Let P exchange the rows 0 and i. Equivariance moves the row we want to the front, and since T is
   autoregressive, all others can be cut off: T(X)[i] = (Π T(X))[0] = T(ΠX)[0] = T((ΠX)[:1])[0] = T(X[i:i+1])[0]." *)
Definition exchange i k := if k =? 0 then i else if k =? i then 0 else k.

Lemma exchange_injective i : FinFun.Injective (exchange i).
Proof. intros j k. unfold exchange. destruct (Nat.eqb_spec j 0), (Nat.eqb_spec k 0), (Nat.eqb_spec j i), (Nat.eqb_spec k i); lia. Qed.
Lemma exchanged {A} (X : list A) i x : nth_error X i = Some x -> exists X', reorders (exchange i) X X'.
Proof.
  intro row. assert (i < length X) by (apply nth_error_Some; congruence).
  exists (map (fun k => nth (exchange i k) X x) (seq 0 (length X))).
  split; [now rewrite map_length, seq_length|]. intro k. destruct (Nat.lt_ge_cases k (length X)) as [small|beyond].
  - rewrite row_table by assumption. symmetry. apply nth_error_nth'. unfold exchange. destruct (k =? 0), (k =? i); lia.
  - transitivity (@None A); [|symmetry]; apply nth_error_None; [now rewrite map_length, seq_length|].
    unfold exchange. destruct (Nat.eqb_spec k 0), (Nat.eqb_spec k i); lia.
Qed.

Theorem rowwise_iff {A B} (T : operator A B) : rowwise T <-> equivariant T /\ autoregressive T.
Proof.
  split; [intro H; split; [now apply rowwise_is_equivariant | now apply rowwise_is_autoregressive]|].
  intros [alike ahead]. apply rowwise_forms. intros X i x row.
  destruct (exchanged X i x row) as [X' R]. destruct (alike _ _ _ (exchange_injective i) R) as [_ moved], R as [_ R].
  specialize (moved 0). specialize (R 0). change (exchange i 0) with i in *. rewrite row in R.
  rewrite <- moved, <- (row_firstn (T X') 0 1), <- ahead by lia.
  destruct X' as [|x' X'']; [discriminate | now injection R as ->].
Qed.

(* --- Building larger operators --------------------------------------------------------------------------------------- *)
Definition identity {A} : operator A A := {| run := fun X => X; height := fun X => eq_refl |}.
Program Definition compose {A B C} (S : operator B C) (T : operator A B) : operator A C := {| run := fun X => S (T X) |}.
Next Obligation. now rewrite !height. Qed.
(* Row i of `side_by_side f S T` is f(S(X)[i], T(X)[i]): with f(u, v) = u + v the sum, with f(u, v) = [u, v] the
   concatenation, with u ⊙ v the gate; with the identity for S it is the residual X + T(X). *)
Program Definition side_by_side {A B C D} (f : B -> C -> D) (S : operator A B) (T : operator A C) : operator A D :=
  {| run := fun X => map (fun '(u, v) => f u v) (combine (S X) (T X)) |}.
Next Obligation. rewrite map_length, combine_length, !height. apply Nat.min_id. Qed.
Definition residual {A} (plus : A -> A -> A) (T : operator A A) : operator A A := side_by_side plus identity T.
Lemma identity_rowwise {A} : rowwise (@identity A).
Proof. exists (fun x => x). intro X. symmetry. apply map_id. Qed.
Lemma row_combine {A B} : forall (X : list A) (Y : list B) i, nth_error (combine X Y) i =
  match nth_error X i, nth_error Y i with Some x, Some y => Some (x, y) | _, _ => None end.
Proof. induction X; intros [|y Y] [|i]; cbn; try reflexivity; [now destruct (nth_error X i) | apply IHX]. Qed.

(* W-composition-claim. "S(T(X[:i])) = S(T(X)[:i]) = S(T(X))[:i]." *)
Lemma compose_autoregressive {A B C} (S : operator B C) (T : operator A B) :
  autoregressive S -> autoregressive T -> autoregressive (compose S T).
Proof. intros s t X i. cbn. now rewrite t, s. Qed.

(* W-closure-lemmas. "Restriction to the first i rows commutes with addition, with putting side by side, …: each of these
   acts on every row by itself." Multiplication by W from the right and addition of a row are compositions with `map`. *)
Lemma side_by_side_autoregressive {A B C D} (f : B -> C -> D) (S : operator A B) (T : operator A C) :
  autoregressive S -> autoregressive T -> autoregressive (side_by_side f S T).
Proof. intros s t X i. cbn. now rewrite s, t, <- combine_firstn, firstn_map. Qed.

(* T-closure-kinds. "The constructions then have the maps s_i∘t_i, s_i + t_i, [s_i, t_i], …, x + t_i(x). If s_i and t_i do not
   depend on i, neither do these." *)
Lemma compose_rowwise {A B C} (S : operator B C) (T : operator A B) : rowwise S -> rowwise T -> rowwise (compose S T).
Proof. intros [s Hs] [t Ht]. exists (fun x => s (t x)). intro X. cbn. now rewrite Ht, Hs, map_map. Qed.
Lemma compose_indexed {A B C} (S : operator B C) (T : operator A B) :
  indexed_rowwise S -> indexed_rowwise T -> indexed_rowwise (compose S T).
Proof.
  intros [s Hs] [t Ht]. exists (fun i x => s i (t i x)). intro X. cbn. rewrite Ht, Hs. apply same_rows. intro i.
  rewrite !row_map_rows. now destruct (nth_error X i).
Qed.
Lemma side_by_side_indexed {A B C D} (f : B -> C -> D) (S : operator A B) (T : operator A C) :
  indexed_rowwise S -> indexed_rowwise T -> indexed_rowwise (side_by_side f S T).
Proof.
  intros [s Hs] [t Ht]. exists (fun i x => f (s i x) (t i x)). intro X. cbn. rewrite Hs, Ht. apply same_rows. intro i.
  rewrite nth_error_map, row_combine, !row_map_rows. now destruct (nth_error X i).
Qed.
Lemma side_by_side_rowwise {A B C D} (f : B -> C -> D) (S : operator A B) (T : operator A C) :
  rowwise S -> rowwise T -> rowwise (side_by_side f S T).
Proof. intros [s Hs] [t Ht]. exists (fun x => f (s x) (t x)). intro X. cbn. rewrite Hs, Ht. induction X; cbn; congruence. Qed.

(* T-equivariant-closure. "S(T(ΠX)) = S(Π T(X)) = Π S(T(X))", and Π commutes with what acts on every row by itself. *)
Lemma compose_equivariant {A B C} (S : operator B C) (T : operator A B) :
  equivariant S -> equivariant T -> equivariant (compose S T).
Proof. intros s t p X X' inj R. exact (s _ _ _ inj (t _ _ _ inj R)). Qed.
Lemma side_by_side_equivariant {A B C D} (f : B -> C -> D) (S : operator A B) (T : operator A C) :
  equivariant S -> equivariant T -> equivariant (side_by_side f S T).
Proof.
  intros s t p X X' inj R. destruct (s _ _ _ inj R) as [_ rs], (t _ _ _ inj R) as [_ rt].
  split; [rewrite !height; apply R|]. intro i. cbn. now rewrite !nth_error_map, !row_combine, rs, rt.
Qed.

(* --- Patterns and the product ---------------------------------------------------------------------------------------- *)
(* A pattern gives for each sequence X of n rows an n×n matrix: A X i j is its entry, for i, j < n. *)
Definition pattern (R W : Type) := list R -> nat -> nat -> W.
(* T-causal-pattern-def: lower triangular, and the leading block is what A makes of the first rows. *)
Definition causal_pattern {R W} (none : W) (A : pattern R W) :=
  (forall X i j, i < j < length X -> A X i j = none) /\
  (forall X m i j, i < m <= length X -> j < m -> A (firstn m X) i j = A X i j).

(* T-equivariant-pattern: A(ΠX) = Π A(X) Πᵀ. *)
Definition equivariant_pattern {R W} (A : pattern R W) :=
  forall p X X' i j, FinFun.Injective p -> reorders p X X' -> i < length X -> j < length X -> A X' i j = A X (p i) (p j).

Section Product.
  Context {R V W : Type} (plus : V -> V -> V) (zero : V) (times : W -> V -> V) (none : W).

  (* Row i of the product A(X) B(X): the sum over j of A(X)_ij B(X)[j]. *)
  Definition weighted_sum (w : nat -> W) (Y : list V) : V := fold_right plus zero (map_rows (fun j => times (w j)) Y).
  Program Definition product (A : pattern R W) (B : operator R V) : operator R V :=
    {| run := fun X => map (fun i => weighted_sum (A X i) (B X)) (seq 0 (length X)) |}.
  Next Obligation. now rewrite map_length, seq_length. Qed.
  Lemma row_product A B X i : i < length X -> nth_error (product A B X) i = Some (weighted_sum (A X i) (B X)).
  Proof. apply (row_table (fun i => weighted_sum (A X i) (B X))). Qed.

  (* What zeros do, and how a sum depends on the first summands alone. *)
  Hypothesis none_times : forall v, times none v = zero.
  Hypothesis zero_plus : plus zero zero = zero.

  Lemma weighted_sum_firstn : forall Y w m, (forall j, m <= j < length Y -> w j = none) ->
    weighted_sum w Y = weighted_sum w (firstn m Y).
  Proof.
    unfold weighted_sum. induction Y as [|y Y IH]; intros w m H; [now rewrite firstn_nil|].
    destruct m as [|m]; cbn.
    - rewrite H, none_times by (cbn; lia). rewrite (IH (fun j => w (S j)) 0) by (intros; apply H; cbn; lia). exact zero_plus.
    - f_equal. apply (IH (fun j => w (S j))). intros. apply H. cbn. lia.
  Qed.
  Lemma weighted_sum_ext : forall Y w w', (forall j, j < length Y -> w j = w' j) -> weighted_sum w Y = weighted_sum w' Y.
  Proof.
    unfold weighted_sum. induction Y as [|y Y IH]; intros w w' H; cbn; [reflexivity|].
    rewrite (H 0) by (cbn; lia). f_equal. apply (IH (fun j => w (S j)) (fun j => w' (S j))). intros. apply H. cbn. lia.
  Qed.

  (* W-product-claim. "Row r < i of A(X) is zero beyond column i−1. In the product with B(X) the zeros meet the rows of B(X)
     from i on, and only the first i rows count: (A(X)B(X))[:i] = A(X[:i]) B(X)[:i] = A(X[:i]) B(X[:i])." *)
  Theorem product_autoregressive A B : causal_pattern none A -> autoregressive B -> autoregressive (product A B).
  Proof.
    intros [triangular leading] b X m. apply by_rows. intros i below small.
    rewrite !row_product by (rewrite ?firstn_length; lia). f_equal.
    rewrite b, (weighted_sum_firstn (B X) (A X i) m) by (rewrite height; intros; apply triangular; lia).
    apply weighted_sum_ext. intros j inside. rewrite firstn_length, height in inside.
    destruct (Nat.le_gt_cases m (length X)); [apply leading; lia | now rewrite firstn_all2 by lia].
  Qed.

  (* T-equivariant-pattern, 2. "P A(X) Pᵀ P B(X) = P A(X) B(X)": the summands are the same in another order. *)
  Hypothesis plus_comm : forall u v, plus u v = plus v u.
  Hypothesis plus_assoc : forall u v w, plus u (plus v w) = plus (plus u v) w.

  Lemma sum_any_order : forall Y Y', Permutation Y Y' -> fold_right plus zero Y = fold_right plus zero Y'.
  Proof. induction 1; cbn; [reflexivity | now f_equal | now rewrite !plus_assoc, (plus_comm x) | congruence]. Qed.

  Theorem product_equivariant A B : equivariant_pattern A -> equivariant B -> equivariant (product A B).
  Proof.
    intros a b p X X' inj order. pose proof (b p X X' inj order) as [same rows]. destruct order as [sameX rowsX].
    split; [now rewrite !height|]. intro i. destruct (Nat.lt_ge_cases i (length X)) as [small|beyond].
    - assert (p i < length X) by (apply nth_error_Some; rewrite <- rowsX; apply nth_error_Some; lia).
      rewrite !row_product by lia. f_equal. symmetry. apply sum_any_order, Permutation_nth_error.
      split; [now rewrite !length_map_rows|]. exists p. split; [exact inj|]. intro j. rewrite !row_map_rows, rows.
      destruct (Nat.lt_ge_cases j (length X)) as [ok|no]; [now rewrite (a p X X') by (try split; auto)|].
      rewrite <- rows, (proj2 (nth_error_None (B X') j)) by (rewrite height; lia). reflexivity.
    - transitivity (@None V); [|symmetry]; apply nth_error_None; rewrite height; [lia|].
      apply nth_error_None. rewrite <- rowsX. apply nth_error_None. lia.
  Qed.
End Product.

(* The masked softmax of scores. Row i has the scores of query i with the keys 0, …, i; `soft` makes weights of them, by
   any rule that may also know i. *)
Definition masked_softmax {R Q K E W} (none : W) (score : nat -> nat -> Q -> K -> E) (soft : nat -> list E -> nat -> W)
  (q : operator R Q) (k : operator R K) : pattern R W := fun X i j =>
  if i <? j then none else
  match nth_error (q X) i with
  | Some x => soft i (map_rows (fun l => score i l x) (firstn (S i) (k X))) j
  | None => none end.

(* T-pattern-lemma, W-masked-softmax-claim, T-masked-softmax-entries. "Row r < i of the softmax is computed from the first
   r+1 entries of row r and padded with zeros. The leading i×i block involves the first i rows of Q(X) and K(X) only." *)
Theorem masked_softmax_causal {R Q K E W} (none : W) score soft (q : operator R Q) (k : operator R K) :
  autoregressive q -> autoregressive k -> causal_pattern none (@masked_softmax R Q K E W none score soft q k).
Proof.
  intros aq ak. split; intros X.
  - intros i j H. unfold masked_softmax. now rewrite (proj2 (Nat.ltb_lt i j)) by lia.
  - intros m i j H _. unfold masked_softmax. now rewrite aq, ak, row_firstn, firstn_of_firstn by lia.
Qed.

(* Three corollaries. Rotary positions: query i and key j are turned by angles that depend on i and j. A sliding window: of
   the scores with the keys 0, …, i the last w are kept. A mixture of experts where each token chooses its own expert. *)
Corollary rotary_causal {R Q E W} (none : W) (turn : nat -> Q -> Q) (inner : Q -> Q -> E) soft (q k : operator R Q) :
  autoregressive q -> autoregressive k ->
  causal_pattern none (masked_softmax none (fun i j x y => inner (turn i x) (turn j y)) soft q k).
Proof. apply masked_softmax_causal. Qed.
Corollary window_causal {R Q K E W} (none : W) w score (soft : list E -> nat -> W) (q : operator R Q) (k : operator R K) :
  autoregressive q -> autoregressive k -> causal_pattern none
    (masked_softmax none score (fun i row j => if j + w <=? i then none else soft (skipn (S i - w) row) (j - (S i - w))) q k).
Proof. apply masked_softmax_causal. Qed.
Corollary token_choice_rowwise {A B N} (route : A -> N) (expert : N -> A -> B) (T : operator A B) :
  (forall X, T X = map (fun x => expert (route x) x) X) -> rowwise T.
Proof. intro H. now exists (fun x => expert (route x) x). Qed.

(* T-equivariant-pattern, 1: without the mask, for a `soft` that does not depend on the order of the scores. *)
Definition open_softmax {R Q K E W} (none : W) (score : Q -> K -> E) (soft : E -> list E -> W)
  (q : operator R Q) (k : operator R K) : pattern R W := fun X i j =>
  match nth_error (q X) i, nth_error (k X) j with
  | Some x, Some y => soft (score x y) (map (score x) (k X))
  | _, _ => none end.

Theorem open_softmax_equivariant {R Q K E W} (none : W) score soft (q : operator R Q) (k : operator R K) :
  (forall e l l', Permutation l l' -> soft e l = soft e l') -> equivariant q -> equivariant k ->
  equivariant_pattern (@open_softmax R Q K E W none score soft q k).
Proof.
  intros any_order eq ek p X X' i j inj order _ _. unfold open_softmax.
  destruct (eq _ _ _ inj order) as [_ rq], (ek _ _ _ inj order) as [same rk]. rewrite rq, rk.
  destruct (nth_error (q X) (p i)), (nth_error (k X) (p j)); try reflexivity.
  apply any_order, Permutation_map, Permutation_sym, Permutation_nth_error. split; [easy | now exists p].
Qed.

(* --- Counterexamples, with whole numbers as rows --------------------------------------------------------------------- *)
Definition total (X : list nat) := fold_right Nat.add 0 X.
Program Definition table (f : list nat -> nat -> nat) : operator nat nat := (* row i of the result is f X i *)
  {| run := fun X => map (f X) (seq 0 (length X)) |}.
Next Obligation. now rewrite map_length, seq_length. Qed.
Definition running_sum := table (fun X i => total (firstn (S i) X)).
Definition running_sum_over_n := table (fun X i => total (firstn (S i) X) / length X).
Definition next_row := table (fun X i => nth (S i) X 0).
Definition add_index : operator nat nat := {| run := map_rows Nat.add; height := fun X => length_map_rows X _ |}.
Definition add_total : operator nat nat := (* centring, with the sum for the mean *)
  {| run := fun X => map (Nat.add (total X)) X; height := fun X => map_length _ X |}.
Definition expert_choice : operator nat nat := (* one expert takes the one row that it likes best, of all *)
  {| run := fun X => map (fun x => if x =? fold_right Nat.max 0 X then x else 0) X; height := fun X => map_length _ X |}.

(* W-rowwise-implies-ar: neither implication can be reversed. *)
Lemma add_index_is_indexed_only : indexed_rowwise add_index /\ ~ rowwise add_index.
Proof. split; [now exists Nat.add|]. rewrite rowwise_forms. intro H. specialize (H [0; 0] 1 0 eq_refl). discriminate H. Qed.
Lemma running_sum_is_autoregressive_only : autoregressive running_sum /\ ~ indexed_rowwise running_sum.
Proof.
  split.
  - apply autoregressive_from_first_rows. exists (fun X => Some (total X)). intros X i. apply (row_table (fun i => total (firstn (S i) X))).
  - intros [t H]. pose proof (H [0; 0]) as H0. specialize (H [1; 0]). cbn in *. congruence.
Qed.

(* T-halves-counterexamples: each half can fail while the other holds. (Division of whole numbers, rounded down.) *)
Lemma running_sum_over_n_halves : half_a running_sum_over_n /\ ~ half_b running_sum_over_n.
Proof.
  split.
  - intros X X' i same first. cbn -[firstn Nat.div]. rewrite <- same. destruct (Nat.lt_ge_cases i (length X)) as [ok|no].
    + now rewrite !row_table, first by assumption.
    + now rewrite !(proj2 (nth_error_None _ i)) by now rewrite map_length, seq_length.
  - intro H. destruct (H [2] 0 1) as ([|y [|]] & long & row); [cbn; lia | discriminate..|]. discriminate row.
Qed.
Lemma next_row_halves : half_b next_row /\ ~ half_a next_row.
Proof.
  split; [|intro H; specialize (H [0; 1] [0; 2] 0 eq_refl eq_refl); discriminate H].
  intros X i k small. exists (repeat 0 k). split; [apply repeat_length|].
  cbn -[nth]. rewrite !row_table by (rewrite ?app_length; lia). f_equal.
  destruct (Nat.lt_ge_cases (S i) (length X)); [now apply app_nth1|].
  rewrite app_nth2, nth_repeat by assumption. symmetry. now apply nth_overflow.
Qed.

(* Equivariant and not autoregressive: what sees all rows; and the choice among all rows. *)
Lemma add_total_looks_ahead : equivariant add_total /\ ~ autoregressive add_total.
Proof.
  split; [|intro H; specialize (H [0; 1] 1); discriminate H]. intros p X X' inj [same rows]. split; [now rewrite !height|].
  intro i. cbn. rewrite !nth_error_map, rows. replace (total X') with (total X); [reflexivity|].
  apply sum_any_order; [apply Nat.add_comm | apply Nat.add_assoc|]. apply Permutation_nth_error. split; [easy | now exists p].
Qed.
Lemma expert_choice_looks_ahead : ~ autoregressive expert_choice.
Proof. intro H. specialize (H [1; 2] 1). discriminate H. Qed.

(* T-equivariant-pattern: with the mask, 1 fails. Even where all scores are equal, row 0 sees only itself. *)
Definition equal_weights : pattern nat nat := masked_softmax 0 (fun _ _ _ _ => 0) (fun _ _ _ => 1) identity identity.
Lemma masked_softmax_is_not_equivariant : ~ equivariant_pattern equal_weights.
Proof.
  intro H. specialize (H (exchange 1) [0; 0] [0; 0] 0 1 (exchange_injective 1)). enough (0 = 1) by discriminate.
  apply H; cbn; [split; [reflexivity | now intros [|[|[|i]]]] | lia | lia].
Qed.

(* W-product-claim: both conditions are needed. A triangular matrix that knows n; all ones, without the mask. *)
Definition ones_product A := product Nat.add 0 Nat.mul A (@identity nat).
Lemma triangular_is_not_enough : ~ autoregressive (ones_product (fun X i j => if i <? j then 0 else length X)).
Proof. intro H. specialize (H [1; 1] 1). discriminate H. Qed.
Lemma leading_blocks_are_not_enough : ~ autoregressive (ones_product (fun _ _ _ => 1)).
Proof. intro H. specialize (H [1; 1] 1). discriminate H. Qed.
